"""Which layers follow one another, by what flows through them and by grade.

A recipe is one letter a layer: P pointwise, V a vector of parameters, N norm, R reduction (last), M product to a new width,
m product back to the width at which the block began, G gated half, D gated pair of products, A attention, C convolution,
Y the second input. `[` remembers the value, `S` joins it again.
"""

from __future__ import annotations

from mtmc.generator import layers
from mtmc.generator.layers import Layer

ROWS: dict[int, tuple[str, ...]] = {
    1: ("P", "V", "N", "R", "M", "G", "Y", "N", "R", "V"),
    2: ("MP", "MV", "NP", "MN", "PR", "VP", "YP", "MG", "YN", "NR", "VN", "MR", "D"),
    3: ("MVP", "MPN", "NMP", "PVN", "YNP", "MPM", "MVPR", "[NPS", "MGN", "MPV", "DM", "NMG", "VPNP"),
    4: ("[NMPmS", "MNPMN", "[MGmS", "[NDmS", "MPMPR", "[MVPmSN", "YMPNV", "[NMPVmSP", "MPMPN", "DMNP"),
    5: ("[NMPmS[NMPmS", "MPMPMP", "MVPMVPMVPR", "[NDmS[NDmS", "MNPMNPM", "MP[NMPmSNM", "[NDmSNMN", "NMPMPMPN"),
}
TOKENS: dict[int, tuple[str, ...]] = {
    1: ("A", "N", "M"),
    2: ("NM", "MP", "AP", "MV"),
    3: ("NA", "[AS", "MPN", "AN", "NMP"),
    4: ("[NAS", "[NMPmS", "[NDmS", "NAMP", "[ASN"),
    5: ("[NAS[NMPmS", "[NAS[NDmS", "[ASN[MPmSN", "[NAS[NAS", "[NDmSNM"),
}
IMAGES: dict[int, tuple[str, ...]] = {
    1: ("N", "V", "P", "R"),
    2: ("NP", "VP", "CP", "PR", "VN"),
    3: ("CNP", "VNP", "NPR", "CVP", "[NPS"),
    4: ("[CNPCNS", "CNPCP", "[NPCSP", "CVPR"),
    5: ("CNP[CNPCNSP", "CNPCNPR", "[CNPCNSP[CNPCNSP"),
}
TABLES: dict[str, dict[str, tuple[Layer, ...]]] = {
    "rows": {
        "P": layers.POINTWISE,
        "V": layers.VECTORS,
        "N": layers.NORMS,
        "R": layers.REDUCTIONS,
        "M": layers.PRODUCTS,
        "m": layers.PRODUCTS,
        "G": layers.GLU,
        "D": layers.GATED,
        "S": layers.RESIDUALS,
        "Y": layers.PAIRS,
    },
}
TABLES["tokens"] = {**TABLES["rows"], "A": layers.ATTENTIONS}
TABLES["images"] = {
    **TABLES["rows"],
    "V": layers.IMAGE_VECTORS,
    "N": layers.IMAGE_NORMS,
    "R": layers.IMAGE_REDUCTIONS,
    "C": layers.CONVOLUTIONS,
}
RECIPES = {"rows": ROWS, "tokens": TOKENS, "images": IMAGES}
FLOWS = ("rows", "rows", "rows", "tokens", "images")
"""What flows through a problem is drawn from these: three in five are plain matrices."""
