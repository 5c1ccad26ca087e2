"""The main job on real input: public routing, calibration, private fine-tuning, and what it is compared with."""
