//! Detection of other programs that steer the system clock: known daemons with the privilege to do
//! so, found through the proc file system.

use std::fmt;
use std::fs;
use std::path::Path;

use horolog_sys::capability::{Capabilities, Capability};

/// Known daemons by name, cut to 15 characters as in `/proc/PID/comm`, and the arguments with which
/// they do not steer the clock.
const DAEMONS: [(&str, &[&str]); 8] = [
    ("chronyd", &["-x"]),
    ("ntpd", &[]),
    ("ntpsec", &[]),
    ("openntpd", &[]),
    ("systemd-timesyn", &[]),
    ("ntp-daemon", &[]),
    ("ptp4l", &["--free_running=1"]),
    ("phc2sys", &["--free_running=1"]),
];

/// Process of another program that steers the system clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForeignSteeringProcess {
    /// Process name.
    pub name: String,
    /// Process identifier.
    pub pid: u32,
}

impl fmt::Display for ForeignSteeringProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {})", self.name, self.pid)
    }
}

/// Returns the process with the lowest number that steers the system clock, as far as `/proc` shows
/// it; `None` if there is none.
#[must_use]
pub fn find_steerer() -> Option<ForeignSteeringProcess> {
    find_in(Path::new("/proc"))
}

fn find_in(proc: &Path) -> Option<ForeignSteeringProcess> {
    let mut pids: Vec<u32> = fs::read_dir(proc)
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    pids.into_iter().find_map(|pid| {
        let read = |file: &str| fs::read(proc.join(pid.to_string()).join(file)).ok();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let name = read("comm").map(text)?.trim_end().to_owned();
        let (_, passive_arguments) = DAEMONS.iter().find(|(daemon, _)| *daemon == name)?;
        let arguments = read("cmdline").map(text).unwrap_or_default();
        let is_passive =
            arguments.split('\0').any(|argument| passive_arguments.contains(&argument));
        let status = read("status").map(text)?;
        let has_privilege =
            Capabilities::parse(&status).is_some_and(|all| all.has(Capability::SysTime));
        (has_privilege && !is_passive).then_some(ForeignSteeringProcess { name, pid })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAY: &str = "CapEff:\t000001ffffffffff\n";
    const MAY_NOT: &str = "CapEff:\t0000000000000400\n";

    fn found(processes: &[(u32, &str, &str, &str)]) -> Option<u32> {
        let proc = tempfile::tempdir().unwrap();
        fs::create_dir(proc.path().join("sys")).unwrap();
        for (pid, name, arguments, status) in processes {
            let own = proc.path().join(pid.to_string());
            fs::create_dir(&own).unwrap();
            fs::write(own.join("comm"), format!("{name}\n")).unwrap();
            fs::write(own.join("cmdline"), arguments.replace(' ', "\0")).unwrap();
            fs::write(own.join("status"), status).unwrap();
        }
        find_in(proc.path()).map(|steerer| steerer.pid)
    }

    #[test]
    fn who_may_and_does_is_found() {
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[(1, "systemd", "init", MAY), (20, "sh", "sh -x", MAY)]), None);
        let chronyd = (30, "chronyd", "/usr/sbin/chronyd -F 1", MAY);
        assert_eq!(found(&[(1, "systemd", "init", MAY), chronyd]), Some(30));
        assert_eq!(found(&[(30, "chronyd", "chronyd -x -d", MAY)]), None);
        assert_eq!(found(&[(30, "chronyd", "chronyd", MAY_NOT)]), None);
        assert_eq!(found(&[(9, "systemd-timesyn", "x", MAY), chronyd]), Some(9));
        assert_eq!(found(&[(9, "ptp4l", "ptp4l --free_running=1 -i eth0", MAY)]), None);
        assert_eq!(found(&[(9, "phc2sys", "phc2sys -a", MAY)]), Some(9));
    }

    #[test]
    fn it_is_named() {
        let steerer = ForeignSteeringProcess { name: "ntpd".into(), pid: 7 };
        assert_eq!(steerer.to_string(), "ntpd (process 7)");
        // Any program that steers the clock here may do so.
        assert!(find_steerer().is_none_or(|steerer| steerer.pid > 0));
    }
}
