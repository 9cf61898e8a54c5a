"""Peak dense 16-bit matrix rate of GPUs in TFLOPS (BF16 or FP16, accumulated in FP32, no sparsity), by table name.

docs/gpu-bandwidth.md says which were checked. What is not here is not known: no ceiling is given for it. Eight-bit
weights computed in 8 bit may be twice as fast, so that a ceiling of 16 bit is passed there.
"""

from __future__ import annotations

PEAKS: dict[str, float] = {
    # NVIDIA, data centre
    **{"GB300": 2500, "GB200": 2500, "B300": 2250, "B200": 2250},
    **{"GH200 480GB": 989, "GH200 144GB": 989, "GH200": 989, "H200 NVL": 835, "H200": 989, "H100 NVL": 835},
    **{"H100 PCIe": 756, "H100 80GB HBM3": 989, "H100": 989, "H800": 989, "H20": 148, "H20 3e": 148},
    **{"A100 80GB PCIe": 312, "A100 SXM4 80GB": 312, "A100 80GB": 312, "A100 40GB": 312, "A100 SXM4 40GB": 312},
    **{"A100 PCIE 40GB": 312, "A100": 312, "A800 SXM4 80GB": 312, "A800 80GB PCIe": 312, "A800 40GB": 312},
    **{"A800": 312, "A30": 165, "A40": 149.7, "A10": 125, "L40S": 362, "L40": 181, "L20": 119.5, "L4": 121},
    **{"V100S": 130, "V100": 125, "P100": 18.7, "T4": 65},
    # NVIDIA, workstation
    **{"RTX PRO 6000 Blackwell": 503.8, "RTX PRO 6000": 503.8},
    **{"RTX 6000 Ada": 364.2, "RTX 5880 Ada": 277.1, "RTX 5000 Ada": 261.1, "RTX 4500 Ada": 158.5},
    **{"RTX A6000": 154.8, "RTX A5500": 136.4, "RTX A5000": 111.1, "RTX A4500": 94.6, "RTX A4000": 76.7},
    **{"Quadro RTX 8000": 130.5, "Quadro RTX 6000": 130.5, "Quadro RTX 5000": 89.2, "TITAN RTX": 130.5},
    # NVIDIA, GeForce: half the rate where sums are kept in FP32
    **{"RTX 5090": 209.5, "RTX 5080": 112.6, "RTX 5070 Ti": 87.9, "RTX 5070": 61.7},
    **{"RTX 4090": 165.2, "RTX 4080 SUPER": 104.4, "RTX 4080": 97.5, "RTX 4070 Ti SUPER": 88.2, "RTX 4070 Ti": 80.2},
    **{"RTX 4070 SUPER": 70.9, "RTX 4070": 58.3, "RTX 4060 Ti": 44.1, "RTX 4060": 30.2},
    **{"RTX 3090 Ti": 80, "RTX 3090": 71.2, "RTX 3080 Ti": 68.2, "RTX 3080": 59.5, "RTX 3070 Ti": 43.5},
    **{"RTX 3070": 40.6, "RTX 3060 Ti": 32.4, "RTX 3060": 25.5, "RTX 2080 Ti": 56.9},
    "GB10": 125,
    # AMD
    **{"MI355X": 2516, "MI350X": 2310, "MI325X": 1307, "MI300X": 1307, "MI300A": 981, "MI250X": 191.5},
    **{"MI250": 181, "MI210": 181, "RX 7900 XTX": 122.8, "RX 7900 XT": 103, "W7900": 122.6},
    # Intel
    **{"Gaudi 3": 1835, "Gaudi 2": 432},
}
