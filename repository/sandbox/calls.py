"""Which system calls a confined process may not make, as a seccomp filter. Pure.

The filter lets through what it does not name, as a deny-list must; what it refuses fails with EPERM
(or ENOSYS, where libraries then take another way); calls that would change attributes of files may
succeed without doing so. Numbers are those of <asm/unistd.h>.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

EPERM, EACCES, ENOSYS = 1, 13, 38


class Machine(NamedTuple):
    """A processor's numbers: `audit` as in <linux/audit.h>; `column` in the table below; that of
    seccomp(2)."""

    audit: int
    column: int
    seccomp_call: int


MACHINES = {"x86_64": Machine(0xC000003E, 0, 317), "aarch64": Machine(0xC00000B7, 1, 277)}

_REFUSED: dict[str, tuple[int | None, int | None]] = {
    # other processes' memory and descriptors
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    # System V's shared memory, semaphores and queues: whatever runs as the same user may use those
    # of others, and they stay when their process has ended
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "semctl": (66, 191),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    # file systems and namespaces
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "unshare": (272, 97),
    "setns": (308, 268),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    # the kernel itself
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "syslog": (103, 116),
    "reboot": (169, 142),
    "iopl": (172, None),
    "ioperm": (173, None),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
}
_ABSENT: dict[str, tuple[int | None, int | None]] = {
    # Its operations pass by every filter, connects among them.
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    # Its flags lie in memory, where a filter cannot look; libc then takes clone.
    "clone3": (435, 435),
}
_EXECUTE: dict[str, tuple[int | None, int | None]] = {
    "execve": (59, 221),
    "execveat": (322, 281),
}
_FORK: dict[str, tuple[int | None, int | None]] = {
    "fork": (57, None),
    "vfork": (58, None),
}
_LEAVE_GROUP: dict[str, tuple[int | None, int | None]] = {
    "setpgid": (109, 154),
    "setsid": (112, 157),
}
_ATTRIBUTES: dict[str, tuple[int | None, int | None]] = {
    # By path, and Landlock does not look at them.
    "chmod": (90, None),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
}
_ATTRIBUTES_OF_OPEN: dict[str, tuple[int | None, int | None]] = {
    # Of any file that can be read; a descriptor that only reads will do.
    "fchmod": (91, 52),
    "fchown": (93, 55),
    "fsetxattr": (190, 7),
    "fremovexattr": (199, 16),
}
_SCHEDULE: dict[str, tuple[int | None, int | None]] = {
    # The kernel lets a user slow down or stop whatever runs as the same user.
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
}
_CLONE, _SOCKET, _PRLIMIT = (56, 220), (41, 198), (302, 261)
_SET_AFFINITY, _SET_PRIORITY, _SET_IO_PRIORITY = (203, 122), (141, 140), (251, 30)
_PRIORITY_OF_USER, _IO_PRIORITY_OF_USER = 2, 3
_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET."""
_THREAD = 0x00010000
"""CLONE_THREAD: it makes no process."""
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_X32 = 0x40000000

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER_AT, _AUDIT_AT, _FIRST_ARGUMENT_AT, _SECOND_ARGUMENT_AT = 0, 4, 16, 24
"""In struct seccomp_data, little-endian."""


class AllowedCalls(NamedTuple):
    """What a process may do; see `repository.sandbox.policy.Sandbox`.

    Without `attributes`, calls that would change those of files do nothing and succeed: copytree,
    tar and linkers give up where they fail, and get along where nothing changes. Those by path fail
    where `execute` is False.
    """

    network: bool
    unix_sockets: bool
    execute: bool
    fork: bool = True
    leave_group: bool = True
    attributes: bool = True


def filter_program(machine: Machine, allowed: AllowedCalls, own_pid: int) -> bytes:
    """The filter, an array of `struct sock_filter`, for the process `own_pid` and its children."""
    column = machine.column
    code = [
        *_unless(_AUDIT_AT, machine.audit),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _ERRNO | EPERM),
        *_refuse(_numbers(_ABSENT, column), ENOSYS),
        *_refuse(_numbers(_REFUSED, column), EPERM),
    ]
    if not allowed.execute:
        refused = {**_EXECUTE, **_ATTRIBUTES}
        code += _refuse(_numbers(refused, column), EPERM)
    if not allowed.attributes:
        code += _refuse(_numbers(_ATTRIBUTES | _ATTRIBUTES_OF_OPEN, column), 0)
    if not allowed.leave_group:
        code += _refuse(_numbers(_LEAVE_GROUP, column), EPERM)
    if not allowed.fork:
        code += _refuse(_numbers(_FORK, column), EPERM)
        code += _on_first_argument(_CLONE[column], [(_ANY_BIT, 1, 0, _THREAD), _deny(EPERM)])
    code += _on_first_argument(_CLONE[column], [(_ANY_BIT, 0, 1, _NAMESPACES), _deny(EPERM)])
    code += _on_first_argument(_PRLIMIT[column], [(_EQUAL, 1, 0, 0), _deny(EPERM)])
    for number in _numbers(_SCHEDULE, column):
        code += _on_first_argument(number, _only_oneself(own_pid, EPERM))
    # OpenMP gives up where it cannot place a thread; told that it has, it goes on.
    code += _on_first_argument(_SET_AFFINITY[column], _only_oneself(own_pid, 0))
    for call, of_user in (
        (_SET_PRIORITY, _PRIORITY_OF_USER),
        (_SET_IO_PRIORITY, _IO_PRIORITY_OF_USER),
    ):
        which = [(_EQUAL, 0, 1, of_user), _deny(EPERM), (_LOAD, 0, 0, _SECOND_ARGUMENT_AT)]
        code += _on_first_argument(call[column], [*which, *_only_oneself(own_pid, EPERM)])
    families = [_UNIX] if allowed.unix_sockets else []
    families += [_INET, _INET6, _NETLINK] if allowed.network else []
    code += _on_first_argument(_SOCKET[column], _only(families))
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("<HBBI", *one) for one in code)


Instruction = tuple[int, int, int, int]


def _deny(errno: int) -> Instruction:
    return (_RETURN, 0, 0, _ERRNO | errno)


def _numbers(table: dict[str, tuple[int | None, int | None]], column: int) -> list[int]:
    return [number for pair in table.values() if (number := pair[column]) is not None]


def _unless(at: int, value: int) -> list[Instruction]:
    """Refuse everything where the word at `at` is another one."""
    return [(_LOAD, 0, 0, at), (_EQUAL, 1, 0, value), _deny(EPERM)]


def _refuse(numbers: Iterable[int], errno: int) -> list[Instruction]:
    return [line for number in numbers for line in ((_EQUAL, 0, 1, number), _deny(errno))]


def _on_first_argument(number: int, body: list[Instruction]) -> list[Instruction]:
    """Run `body` over the lower half of the first argument of one call; then go on."""
    return [
        (_EQUAL, 0, len(body) + 2, number),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        *body,
        (_LOAD, 0, 0, _NUMBER_AT),
    ]


def _only_oneself(own_pid: int, errno: int) -> list[Instruction]:
    """Unless the argument is the calling thread (0) or `own_pid`, do nothing and return `errno`."""
    return [(_EQUAL, 2, 0, 0), (_EQUAL, 1, 0, own_pid), _deny(errno)]


def _only(values: list[int]) -> list[Instruction]:
    """Refuse unless it is one of `values`."""
    tests = [(_EQUAL, len(values) - index, 0, value) for index, value in enumerate(values)]
    return [*tests, _deny(EACCES)]
