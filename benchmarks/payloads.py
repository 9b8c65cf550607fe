"""Values as instruments, models and people make them, from a seed: what decides how well they compress.

Fields have power-law spectra, as in `zarrgpu.sample`; images have photon counts and the noise of a camera.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from zarrgpu.sample import spectral_field

LAND = np.int16(-32768)


def forecast(steps: int, side: int, seed: int, keep: int = 9) -> npt.NDArray[np.float32]:
    """Temperatures of a forecast, ``float32[steps, side, side]``: smooth in time, `keep` bits of each mantissa."""
    rng = np.random.default_rng((10, seed))
    waves = [spectral_field((side, side), rng, 2.6) for _ in range(6)]
    t = np.linspace(0, 2 * np.pi * steps / 240, steps, dtype=np.float32)[:, None, None]
    values = sum(np.cos((k + 1) * t + k) * wave / np.float32(k + 1) for k, wave in enumerate(waves))
    values += np.float32(0.15) * np.stack([spectral_field((side, side), rng, 1.6) for _ in range(steps)])
    bits = (285 + 8 * values).astype(np.float32).view(np.uint32)
    dropped = 23 - keep
    rounded = (bits + np.uint32(1 << (dropped - 1))) & ~np.uint32((1 << dropped) - 1)
    return rounded.view(np.float32)


def sea_surface(rows: int, columns: int, seed: int, noise: float = 3.0) -> npt.NDArray[np.int16]:
    """Packed temperatures of the sea, ``int16[rows, columns]``; land is one value."""
    rng = np.random.default_rng((11, seed))
    values = spectral_field((rows, columns), rng, 3.2) * 900 + rng.normal(0, noise, (rows, columns))
    packed = np.rint(values).astype(np.int16)
    packed[spectral_field((rows, columns), rng) > 0.45] = LAND
    return packed


def smoothed(values: npt.NDArray[np.float32], sigma: float) -> npt.NDArray[np.float32]:
    """`values`, periodic, after a Gaussian filter of `sigma` elements."""
    frequencies = [np.fft.fftfreq(n) for n in values.shape[:-1]] + [np.fft.rfftfreq(values.shape[-1])]
    spectrum = np.fft.rfftn(values)
    for axis, f in enumerate(frequencies):
        gain = np.exp(-2 * (np.pi * sigma * f) ** 2)
        spectrum *= gain.reshape([-1 if k == axis else 1 for k in range(values.ndim)])
    filtered: npt.NDArray[np.float32] = np.fft.irfftn(spectrum, s=values.shape, axes=range(values.ndim)).astype(
        np.float32
    )
    return filtered


def fluorescence(side: int, seed: int, peak: float = 40.0, read_noise: float = 2.0) -> npt.NDArray[np.uint16]:
    """A volume under a light-sheet microscope, ``uint16[side] * 3``: sparse blobs in photons, an offset, a camera."""
    rng = np.random.default_rng((12, seed))
    shape = (side,) * 3
    blobs = smoothed((rng.random(shape, dtype=np.float32) < 1e-3).astype(np.float32), 3.0).clip(0)
    photons = rng.poisson(blobs / blobs.max() * peak + 1.0) + rng.normal(0, read_noise, shape)
    volume: npt.NDArray[np.uint16] = np.clip(100 + photons, 0, 65535).astype(np.uint16)
    return volume


def electrons(side: int, seed: int, noise: float = 9.0) -> npt.NDArray[np.uint8]:
    """A volume under an electron microscope, ``uint8[side] * 3``: membranes and noise."""
    rng = np.random.default_rng((13, seed))
    shape = (side,) * 3
    texture = smoothed(rng.normal(size=shape).astype(np.float32), 2.5)
    return np.clip(texture / texture.std() * 26 + 132 + rng.normal(0, noise, shape), 0, 255).astype(np.uint8)


def labels(side: int, seed: int, cells: int = 40) -> npt.NDArray[np.uint32]:
    """The same volume segmented, ``uint32[side] * 3``: each element has the number of the nearest of some points."""
    rng = np.random.default_rng((14, seed))
    points = rng.random((cells, 3)).astype(np.float32) * side
    numbers = rng.integers(1, 1 << 20, cells, dtype=np.uint32)
    axes = [(np.arange(side, dtype=np.float32)[:, None] - points[:, k]) ** 2 for k in range(3)]
    nearest = np.empty((side,) * 3, np.intp)
    for z in range(side):
        nearest[z] = (axes[0][z] + axes[1][:, None] + axes[2][None]).argmin(axis=-1)
    return numbers[nearest]


def genotypes(variants: int, samples: int, seed: int, rarity: float = 0.12) -> npt.NDArray[np.int8]:
    """Calls of diploid samples, ``int8[variants, samples, 2]``: most variants are rare."""
    rng = np.random.default_rng((15, seed))
    frequencies = rng.beta(rarity, 8.0, variants)
    return (rng.random((variants, samples, 2), dtype=np.float32) < frequencies[:, None, None]).astype(np.int8)


def reflectance(side: int, seed: int, noise: float = 18.0) -> npt.NDArray[np.uint16]:
    """A band of Sentinel-2, ``uint16[side, side]``."""
    rng = np.random.default_rng((16, seed))
    values = 1800 + 550 * spectral_field((side, side), rng, 2.2) + rng.normal(0, noise, (side, side))
    return np.clip(values, 1, 20000).astype(np.uint16)
