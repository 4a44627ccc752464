//! Scenarios and their needs. A scenario that cannot run on this host is reported as ignored, by
//! name and with the reason; none is omitted silently.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use horolog_record::LoadEngineKind;
use horolog_sys::adjtimex::kernel_clock;

use crate::debian_root;
use crate::launch_systemd::{cgroup_root, systemd};
use crate::static_binary;

/// Requirement of a scenario.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// Root, for network namespaces, raw frames and BPF.
    Root,
    /// Third-party program in `PATH`.
    Peer(&'static str),
    /// IPv6 in the kernel.
    Ipv6,
    /// System clock that the kernel reports as unsynchronised. Scenarios never set the clock.
    UnsynchronisedClock,
    /// Root file system made by debootstrap from the host's release, in the cache.
    DebianRoot,
    /// Static binary, in the cache.
    StaticBinary,
    /// Programs of systemd, and a cgroup2 file system for an instance of it.
    Systemd,
}

/// Reason for which a scenario is not run.
pub(crate) enum UnmetRequirement {
    /// The host lacks a property that cannot be installed.
    Machine(String),
    /// A program or file that `make` installs is missing.
    Peer(String),
}

impl Need {
    /// Returns the reason for which this host lacks it, if it does.
    pub(crate) fn unmet_requirement(self) -> Option<UnmetRequirement> {
        let (met, reason) = match self {
            Self::Root => (is_root(), "needs root".to_owned()),
            Self::Peer(program) if in_path(program).is_some() => return None,
            Self::Peer(program) => {
                return Some(UnmetRequirement::Peer(format!("{program} in PATH")));
            }
            Self::DebianRoot if debian_root::image().is_some() => return None,
            Self::DebianRoot => {
                let reason = "a Debian root file system in the cache";
                return Some(UnmetRequirement::Peer(reason.to_owned()));
            }
            Self::StaticBinary => (
                static_binary::try_program().is_some(),
                "needs the static binary of 'make static-try'".to_owned(),
            ),
            Self::Ipv6 => (Path::new("/proc/net/if_inet6").exists(), "needs IPv6".to_owned()),
            Self::UnsynchronisedClock => (
                kernel_clock().is_ok_and(|clock| !clock.synchronised),
                "needs a machine whose clock is not synchronised".to_owned(),
            ),
            Self::Systemd => (
                systemd().is_some() && cgroup_root().is_some() && in_path("systemd-run").is_some(),
                "needs systemd and a cgroup2 file system".to_owned(),
            ),
        };
        (!met).then_some(UnmetRequirement::Machine(reason))
    }
}

/// Returns the path of a file in the cache of `make`, if it exists.
pub(crate) fn cached_file(name: &str) -> Option<PathBuf> {
    let directory = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let cache = directory("HOROLOG_CACHE").or_else(|| {
        let caches =
            directory("XDG_CACHE_HOME").or_else(|| Some(directory("HOME")?.join(".cache")));
        Some(caches?.join("horolog"))
    });
    cache.map(|cache| cache.join(name)).filter(|file| file.is_file())
}

/// Returns true if this process runs as root.
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Returns the path of a program found in `PATH`.
pub(crate) fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
}

/// Queue of a scenario: what may run at the same time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Queue {
    /// The outcome does not depend on what runs beside it.
    Shared,
    /// The scenario loads cores in the kernel or at real-time priority, so that others wait, or its
    /// outcome depends on rates, latencies or losses at moderate load.
    Measuring,
    /// The scenario loads every core, or judges what needs every core.
    Exclusive,
}

impl Queue {
    /// All queues, in the order in which they run.
    pub(crate) const ALL: [Self; 3] = [Self::Shared, Self::Measuring, Self::Exclusive];

    /// Returns the queue of a scenario with this load generator. The one in the kernel never waits,
    /// so that threads beside it do.
    pub(crate) const fn of_generator(engine: LoadEngineKind) -> Self {
        if matches!(engine, LoadEngineKind::Xdp) { Self::Measuring } else { Self::Shared }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Measuring => "measuring",
            Self::Exclusive => "exclusive",
        }
    }

    /// Returns the number of scenarios that run at the same time on so many cores.
    pub(crate) const fn width(self, cores: usize) -> usize {
        match self {
            // They mostly wait, for a reply of a peer or for time to pass.
            Self::Shared => 6 * cores,
            // More of them delay one another by more than their trials allow; each waits about half
            // of its time.
            Self::Measuring => cores + cores.div_ceil(2),
            Self::Exclusive => 1,
        }
    }

    /// Returns true if a scenario has to get the cores when it wants them.
    pub(crate) const fn takes_precedence(self) -> bool {
        matches!(self, Self::Measuring | Self::Exclusive)
    }
}

/// Scenario that runs in a process of its own.
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) needs: &'static [Need],
    pub(crate) queue: Queue,
    pub(crate) run: Box<dyn FnOnce() -> Result<(), String>>,
}

impl Scenario {
    /// Moves the scenario to this queue.
    pub(crate) fn in_queue(self, queue: Queue) -> Self {
        Self { queue, ..self }
    }
}

/// Makes a scenario from a function.
pub(crate) fn scenario<E: Display>(
    name: impl Into<String>,
    needs: &'static [Need],
    run: impl FnOnce() -> Result<(), E> + 'static,
) -> Scenario {
    // `{:#}` prints an error with its causes, on one line.
    let run = Box::new(|| run().map_err(|error| format!("{error:#}")));
    Scenario { name: name.into(), needs, queue: Queue::Shared, run }
}

/// Makes scenarios from functions of one module with the same needs, each named `MODULE::FUNCTION`.
#[macro_export]
macro_rules! scenarios {
    ($needs:expr, $module:ident: $($function:ident),+ $(,)?) => {
        [$($crate::scenario::scenario(
            concat!(stringify!($module), "::", stringify!($function)),
            $needs,
            $module::$function,
        )),+]
    };
}
