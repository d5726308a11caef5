"""Limits that a container sets on this process: control groups of version 1 and 2, and both mounted at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Version 1 writes "no limit" as the largest page-aligned 63-bit number; nothing real comes near 2^60 bytes.
_UNLIMITED = 1 << 60


@dataclass(frozen=True)
class Cgroups:
    """Reads the control groups of a process.

    Args:
        root: Where the file system starts; tests point it at a folder that plays `/`.
    """

    root: Path = Path("/")

    def memory_headroom(self) -> int | None:
        """Bytes that may still be allocated before the tightest limit above this process, or None without a limit.

        Page cache that the kernel would drop first (`inactive_file`) does not count as used.
        """
        rooms = [
            room
            for folder, version in self._folders("memory")
            if (room := _headroom(folder, version)) is not None
        ]
        return min(rooms, default=None)

    def cpu_quota(self) -> float | None:
        """Processors' worth of time this process may use (1.5 = one and a half), or None without a quota."""
        quotas = [
            quota
            for folder, version in self._folders("cpu")
            if (quota := _quota(folder, version)) is not None
        ]
        return min(quotas, default=None)

    def _folders(self, controller: str) -> Iterator[tuple[Path, int]]:
        """Control group folders from this process's own up to the mount point, each with its version."""
        groups = _memberships(self._read("proc/self/cgroup"))
        for mount_root, mount_point, version, controllers in _mounts(self._read("proc/self/mountinfo")):
            key = "" if version == 2 else controller
            if (version == 1 and controller not in controllers) or key not in groups:
                continue
            top = self.root / mount_point.lstrip("/")
            yield from ((folder, version) for folder in _ancestors(top, _relative(groups[key], mount_root)))

    def _read(self, name: str) -> str:
        return _text(self.root / name) or ""


def _memberships(text: str) -> dict[str, str]:
    """`/proc/self/cgroup`: controller -> path; version 2 has the empty controller."""
    groups = {}
    for line in text.splitlines():
        fields = line.split(":", 2)
        if len(fields) == 3:
            groups.update(dict.fromkeys(fields[1].split(","), fields[2]))
    return groups


def _mounts(text: str) -> Iterator[tuple[str, str, int, set[str]]]:
    """`/proc/self/mountinfo`: (root inside the hierarchy, mount point, version, controllers) of each cgroup mount."""
    for line in text.splitlines():
        left, dash, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if dash and len(fields) >= 5 and kind and kind[0] in ("cgroup", "cgroup2"):
            yield fields[3], fields[4], 2 if kind[0] == "cgroup2" else 1, set(kind[-1].split(","))


def _relative(group: str, mount_root: str) -> str:
    """The group's path below the mount: a container often mounts its own group as the root."""
    if mount_root != "/" and (group == mount_root or group.startswith(mount_root + "/")):
        return group[len(mount_root) :].strip("/")
    return group.strip("/")


def _ancestors(top: Path, relative: str) -> Iterator[Path]:
    folder = top / relative
    while folder != top:
        yield folder
        folder = folder.parent
    yield top


def _headroom(folder: Path, version: int) -> int | None:
    limit_name, usage_name, cache_name = (
        ("memory.max", "memory.current", "inactive_file")
        if version == 2
        else ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    )
    limit, usage = _number(folder / limit_name), _number(folder / usage_name)
    if limit is None or usage is None or limit >= _UNLIMITED:
        return None
    return max(0, limit - usage + _stat(folder / "memory.stat", cache_name))


def _quota(folder: Path, version: int) -> float | None:
    if version == 2:
        quota, _, period = (_text(folder / "cpu.max") or "max 0").strip().partition(" ")
        return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None
    time, every = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return time / every if time is not None and time > 0 and every else None


def _stat(path: Path, name: str) -> int:
    for line in (_text(path) or "").splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.isdigit():
            return int(value)
    return 0


def _number(path: Path) -> int | None:
    """A file that holds one number; `max`, an absent file and a negative number (no quota) have none."""
    text = (_text(path) or "").strip()
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:  # absent, or hidden from this process: the same as no limit
        return None
