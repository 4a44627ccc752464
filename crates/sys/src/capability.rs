//! Privileges of this thread: capabilities(7), read from the proc file system. Nothing is acquired
//! or dropped here.

use std::{fs, io};

/// Capability that a command of Horolog can use; the discriminant is its number in
/// `linux/capability.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Capability {
    /// Access to files and directories of other users.
    DacOverride = 1,
    /// Binding to ports below 1024.
    NetBindService = 10,
    /// Configuration of interfaces and routes, attachment of XDP programs, large socket buffers.
    NetAdmin = 12,
    /// Opening packet sockets.
    NetRaw = 13,
    /// Namespaces and mounts; on older kernels also what has a capability of its own today.
    SysAdmin = 21,
    /// Real-time scheduling.
    SysNice = 23,
    /// Setting and steering the system clock.
    SysTime = 25,
    /// Access to programs' memory, which some BPF program types need.
    Perfmon = 38,
    /// Loading BPF programs.
    Bpf = 39,
}

impl Capability {
    /// Returns the name of the capability, such as `CAP_NET_RAW`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DacOverride => "CAP_DAC_OVERRIDE",
            Self::NetBindService => "CAP_NET_BIND_SERVICE",
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::NetRaw => "CAP_NET_RAW",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::SysNice => "CAP_SYS_NICE",
            Self::SysTime => "CAP_SYS_TIME",
            Self::Perfmon => "CAP_PERFMON",
            Self::Bpf => "CAP_BPF",
        }
    }
}

/// Effective capabilities of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Capabilities(u64);

impl Capabilities {
    /// Returns the effective capabilities of this thread.
    ///
    /// # Errors
    ///
    /// If the proc file system is missing.
    pub fn effective() -> io::Result<Self> {
        let status = fs::read_to_string("/proc/thread-self/status")?;
        Self::parse(&status).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Returns true if `capability` is effective. `CAP_SYS_ADMIN` includes the capabilities that
    /// were split off from it later.
    #[must_use]
    pub fn has(self, capability: Capability) -> bool {
        let holds = |one: Capability| self.0 >> (one as u32) & 1 == 1;
        let split_off = matches!(capability, Capability::Bpf | Capability::Perfmon);
        holds(capability) || split_off && holds(Capability::SysAdmin)
    }

    /// Parses the effective capabilities in `/proc/PID/status`; `None` if the line is missing or
    /// invalid.
    #[must_use]
    pub fn parse(status: &str) -> Option<Self> {
        let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        u64::from_str_radix(mask.trim(), 16).ok().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_read_from_the_status_file() {
        let status = "Name:\tx\nCapInh:\tffffffffffffffff\nCapEff:\t0000000000003000\n";
        let capabilities = Capabilities::parse(status).unwrap();
        assert!(capabilities.has(Capability::NetAdmin) && capabilities.has(Capability::NetRaw));
        assert!(!capabilities.has(Capability::Bpf) && !capabilities.has(Capability::SysNice));
        assert_eq!(Capabilities::parse("CapEff:\tnonsense\n"), None);
        assert_eq!(Capabilities::parse(""), None);
    }

    #[test]
    fn an_administrator_may_load_programs() {
        let capabilities = Capabilities::parse("CapEff: 200000").unwrap();
        assert!(capabilities.has(Capability::Bpf) && !capabilities.has(Capability::NetAdmin));
    }

    #[test]
    fn this_thread_has_a_status() {
        Capabilities::effective().unwrap();
    }
}
