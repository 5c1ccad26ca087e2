"""The figures of the paper's tables, as printed: the last digit of a text says how far its number was rounded.

Duc Dm et al., "RAPTOR: Role-Aware Private Training for Mixture-of-Experts", 2026; the rows that its public page shows
(Table 1, 6 and 7 are longer). The same method has the same name in every table here. Rates and accuracies are in per
cent.
"""

from decimal import Decimal
from fractions import Fraction

TASKS = ("SST-2", "MNLI", "QNLI", "QQP")

# Training records of each task in GLUE (Wang et al. 2018). QQP has 363,846 of them; some copies have 363,849.
RECORDS = {"SST-2": 67_349, "MNLI": 392_702, "QNLI": 104_743, "QQP": 363_846}
RECORDS_QQP_OTHER_COPY = 363_849

LORA, FULL, RAPTOR = "monolithic LoRA", "monolithic, all parameters", "RAPTOR, entropy-selected"
FIRST, LAST, GLOBAL = "RAPTOR, first sparse", "RAPTOR, last sparse", "global, same scope"
SELECTED_BLOCKS = {"SST-2": 1, "MNLI": 7, "QNLI": 11, "QQP": 9}  # Table 1, caption
FIRST_BLOCK, LAST_BLOCK = 1, 11

# Accuracies: (ε, method) -> one a task.
TABLE_1 = {
    ("∞", "non-private LoRA"): ("94.69", "86.55", "91.20", "90.96"),
    ("∞", "non-private FFN"): ("94.50", "86.36", "91.09", "91.28"),
    ("1", LORA): ("90.94", "76.91", "80.38", "81.19"),
    ("1", FULL): ("87.04", "72.72", "81.44", "81.84"),
    ("1", FIRST): ("92.90", "77.40", "82.60", "83.20"),
    ("1", LAST): ("92.66", "77.87", "83.30", "83.80"),
}
TABLE_5 = {
    ("8", LORA): ("93.92", "79.36", "82.48", "82.68"),
    ("8", RAPTOR): ("94.15", "81.32", "85.26", "85.92"),
    ("8", "with D_e = B"): ("94.10", "80.96", "84.28", "85.55"),
    ("8", "with one clip norm"): ("94.09", "81.25", "84.64", "85.84"),
    ("8", "not alternating"): ("94.02", "80.21", "83.29", "84.09"),
    ("1", LORA): ("90.94", "76.91", "80.38", "81.19"),
    ("1", RAPTOR): ("92.90", "78.42", "83.30", "84.08"),
    ("1", "with D_e = B"): ("92.83", "77.98", "82.79", "83.55"),
    ("1", "with one clip norm"): ("92.82", "78.34", "83.22", "83.99"),
    ("1", "not alternating"): ("92.75", "77.15", "81.68", "81.99"),
}
TABLE_6 = {
    ("1", LORA): ("90.94", "76.91", "80.38", "81.19"),
    ("1", GLOBAL): ("92.55", "76.80", "82.90", "83.10"),
    ("1", "shared only"): ("91.80", "76.40", "82.50", "82.90"),
    ("1", "experts only"): ("67.78", "32.75", "49.72", "63.66"),
    ("1", RAPTOR): ("92.90", "78.42", "83.30", "84.08"),
    ("4", LORA): ("92.66", "78.33", "81.95", "82.26"),
}

# QNLI: (ε, method) -> accuracy, then AUC and TPR at 0.1 % FPR of each attack.
TABLE_3 = {
    ("∞", "non-private LoRA"): ("91.20", {"loss": ("0.568", "0.45"), "LiRA": ("0.620", "3.00")}),
    ("1", LORA): ("80.38", {"loss": ("0.501", "0.10"), "LiRA": ("0.504", "0.13")}),
    ("1", GLOBAL): ("82.90", {"loss": ("0.502", "0.11"), "LiRA": ("0.505", "0.14")}),
    ("1", RAPTOR): ("83.30", {"loss": ("0.502", "0.10"), "LiRA": ("0.506", "0.15")}),
    ("4", LORA): ("81.95", {"loss": ("0.505", "0.12"), "LiRA": ("0.513", "0.23")}),
}
TABLE_3_FPR = 0.001

EPOCHS, BATCH_SIZE, RHO = 20, 1000, 0.9  # Table 4, the selected values

# (task, block) -> H/log E, log E - H, χ².
TABLE_7 = {
    ("MNLI", 1): ("0.307", "1.442", "4.946"),
    ("MNLI", 3): ("0.674", "0.677", "1.580"),
    ("MNLI", 5): ("0.641", "0.746", "1.617"),
    ("MNLI", 7): ("0.682", "0.660", "1.262"),
    ("MNLI", 9): ("0.643", "0.743", "1.356"),
    ("MNLI", 11): ("0.646", "0.736", "1.381"),
}

# (task, "selected" or "collapsed") -> block, CV, H/log E.
TABLE_9 = {
    ("SST-2", "selected"): (1, "0.344", "0.972"),
    ("SST-2", "collapsed"): (9, "2.185", "0.304"),
    ("MNLI", "selected"): (7, "1.123", "0.682"),
    ("MNLI", "collapsed"): (1, "2.224", "0.307"),
    ("QNLI", "selected"): (11, "0.627", "0.902"),
    ("QNLI", "collapsed"): (1, "1.121", "0.761"),
}

# Role -> parameters, ΔL of the noise injected, λ₊.
TABLE_10 = {"shared": ("9438722", "2.175e-4", "2.305e-5"), "experts": ("7864320", "-1.361e-6", "0")}

# Method -> trainable parameters in millions, per cent of all, seconds a step, GPU-hours.
TABLE_11 = {
    LORA: ("14.16", "4.60", "4.07", "1.47"),
    FULL: ("307.85", "100.00", "7.23", "2.61"),
    RAPTOR: ("17.30", "5.62", "4.51", "1.65"),
}


def interval(printed: str) -> tuple[float, float]:
    """Return the numbers that print so: half of the last digit to either side; a whole number stands for itself.

    >>> interval("0.641"), interval("2.175e-4"), interval("7864320")
    ((0.6405, 0.6415), (0.00021745, 0.00021755), (7864320.0, 7864320.0))
    """
    number = Decimal(printed)
    places = int(number.as_tuple().exponent)
    half = Fraction(10) ** places / 2 if "." in printed else Fraction(0)
    return float(Fraction(number) - half), float(Fraction(number) + half)
