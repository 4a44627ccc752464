//! System call filter of a server (seccomp(2)). Allowed are calls that a server was observed to
//! make, or that its libraries may make instead. All others fail with `EPERM`, and clone3 with
//! `ENOSYS`; those that only injected code would make kill the process.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule,
};

/// Reason why no seccomp filter is installed.
#[derive(Debug, thiserror::Error)]
pub enum SeccompFilterError {
    /// The filter cannot be built, for example for this CPU architecture.
    #[error(transparent)]
    Build(#[from] BackendError),
    /// The kernel refused it.
    #[error(transparent)]
    Install(#[from] seccompiler::Error),
}

/// Threads to which a seccomp filter applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeccompFilterScope {
    /// All threads of the process, and those that they start.
    Process,
    /// This thread, and those that it starts.
    Thread,
}

/// Calls that a server never makes; they kill the process.
const FORBIDDEN_CALLS: &[c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_userfaultfd,
    libc::SYS_perf_event_open,
    libc::SYS_acct,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_open_by_handle_at,
    libc::SYS_io_uring_setup,
];

/// Sockets, packets and waiting for them.
const NETWORK_CALLS: &[c_long] = &[
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    libc::SYS_shutdown,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_eventfd2,
    libc::SYS_pipe2,
];

/// Files, to the extent that Landlock allows access.
const FILE_CALLS: &[c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_unlinkat,
    libc::SYS_mkdirat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_ftruncate,
    libc::SYS_flock,
    libc::SYS_fcntl,
    libc::SYS_ioctl,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_umask,
];

/// Memory, of this process and shared with time sources.
const MEMORY_CALLS: &[c_long] = &[
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_membarrier,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmdt,
    libc::SYS_shmctl,
];

/// Threads, signals, and properties of this process.
const THREAD_CALLS: &[c_long] = &[
    libc::SYS_clone3,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
    // Used by musl to send signals to its threads.
    libc::SYS_tkill,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_getparam,
    libc::SYS_setpriority,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_getrusage,
    libc::SYS_capget,
    libc::SYS_restart_syscall,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getcpu,
    libc::SYS_getrandom,
];

/// Reading clocks and waiting. Setting a clock needs a capability that was dropped.
const TIME_CALLS: &[c_long] = &[
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
];

/// Legacy calls that the C library still makes on this architecture.
#[cfg(target_arch = "x86_64")]
const LEGACY_CALLS: &[c_long] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_wait,
    libc::SYS_chmod,
    libc::SYS_unlink,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_rename,
    libc::SYS_readlink,
    libc::SYS_dup2,
    libc::SYS_time,
    libc::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
const LEGACY_CALLS: &[c_long] = &[];

/// Commands of bpf(2) on open maps and links; none creates or loads anything.
const BPF_COMMANDS: [u64; 9] = [
    1,  // BPF_MAP_LOOKUP_ELEM
    2,  // BPF_MAP_UPDATE_ELEM
    3,  // BPF_MAP_DELETE_ELEM
    4,  // BPF_MAP_GET_NEXT_KEY
    15, // BPF_OBJ_GET_INFO_BY_FD
    24, // BPF_MAP_LOOKUP_BATCH
    26, // BPF_MAP_UPDATE_BATCH
    27, // BPF_MAP_DELETE_BATCH
    34, // BPF_LINK_DETACH
];

/// All `CLONE_NEW*` flags of clone(2); threads need no new namespaces.
const NEW_NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;

/// Restricts system calls permanently.
///
/// # Errors
///
/// If the kernel has no seccomp, or not for this processor.
pub fn filter_system_calls(scope: SeccompFilterScope) -> Result<(), SeccompFilterError> {
    let errno = |number: i32| SeccompAction::Errno(number.cast_unsigned());
    let (allow, end) = (SeccompAction::Allow, SeccompAction::KillProcess);
    let foreign = FORBIDDEN_CALLS.iter().map(|call| (*call, Vec::new())).collect();
    // clone3's flags cannot be inspected; with `ENOSYS` the C library falls back to clone(2).
    let unknown = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    for program in [
        compile_filter(foreign, allow.clone(), end)?,
        compile_filter(unknown, allow.clone(), errno(libc::ENOSYS))?,
        // Installed last, because it forbids installing filters. The strictest result of all
        // filters applies.
        compile_filter(allowed_calls()?, errno(libc::EPERM), allow)?,
    ] {
        match scope {
            SeccompFilterScope::Process => seccompiler::apply_filter_all_threads(&program)?,
            SeccompFilterScope::Thread => seccompiler::apply_filter(&program)?,
        }
    }
    Ok(())
}

type SeccompRules = BTreeMap<c_long, Vec<SeccompRule>>;

fn compile_filter(
    rules: SeccompRules,
    otherwise: SeccompAction,
    matched: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let processor = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, otherwise, matched, processor)?.try_into()
}

fn allowed_calls() -> Result<SeccompRules, BackendError> {
    let whole = [NETWORK_CALLS, FILE_CALLS, MEMORY_CALLS, THREAD_CALLS, TIME_CALLS, LEGACY_CALLS];
    let mut rules: SeccompRules =
        whole.into_iter().flatten().map(|call| (*call, Vec::new())).collect();
    let without = |argument, flags| argument_rule(argument, SeccompCmpOp::MaskedEq(flags), 0);
    let executable = libc::PROT_EXEC as u64;
    rules.insert(libc::SYS_mmap, vec![without(2, executable)?]);
    rules.insert(libc::SYS_mprotect, vec![without(2, executable)?]);
    rules.insert(libc::SYS_clone, vec![without(0, NEW_NAMESPACES)?]);
    let commands =
        BPF_COMMANDS.into_iter().map(|command| argument_rule(0, SeccompCmpOp::Eq, command));
    rules.insert(libc::SYS_bpf, commands.collect::<Result<_, _>>()?);
    Ok(rules)
}

fn argument_rule(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompRule, BackendError> {
    let length = SeccompCmpArgLen::Qword;
    SeccompRule::new(vec![SeccompCondition::new(argument, length, operator, value)?])
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::UdpSocket;

    use super::*;

    fn error_of(call: c_long) -> Option<i32> {
        // SAFETY: calls without effect when they are refused, with numbers for arguments.
        let result = unsafe { libc::syscall(call, -1, 0, 0, 0, 0) };
        (result == -1).then(|| io::Error::last_os_error().raw_os_error()).flatten()
    }

    #[test]
    fn a_thread_can_do_its_work_and_nothing_else() {
        std::thread::spawn(|| {
            filter_system_calls(SeccompFilterScope::Thread).unwrap();
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
            std::fs::read("/proc/self/status").unwrap();
            std::thread::spawn(|| std::thread::sleep(std::time::Duration::from_millis(1)))
                .join()
                .unwrap();
            assert_eq!(error_of(libc::SYS_setuid), Some(libc::EPERM));
            assert_eq!(error_of(libc::SYS_sched_rr_get_interval), Some(libc::EPERM));
            // Loading a program.
            // SAFETY: refused before any argument is read.
            let loaded = unsafe { libc::syscall(libc::SYS_bpf, 5, 0, 0) };
            assert_eq!(
                (loaded, io::Error::last_os_error().raw_os_error()),
                (-1, Some(libc::EPERM))
            );
        })
        .join()
        .unwrap();
    }
}
