//! Identity of the process of a job beyond its PID, which the kernel reuses: its start time, and
//! the boot from which that is counted.

use std::fs;

use horolog_sys::process::ProcessHandle;
use serde::{Deserialize, Serialize};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Index of the start time after the name (`proc_pid_stat(5)`, field 22).
const START_FIELD: usize = 19;
/// Index of the state after the name (field 3).
const STATE_FIELD: usize = 0;

/// Unique identity of a process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// Process ID.
    pub pid: u32,
    /// Start time, in clock ticks since boot.
    pub start_ticks: u64,
    /// Boot ID of the kernel, which identifies the boot from which `start_ticks` counts.
    pub boot_id: String,
}

impl ProcessIdentity {
    /// Returns the identity of the process that has this PID now; `None` if none is running.
    #[must_use]
    pub fn from_pid(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let boot_id = fs::read_to_string(BOOT_ID).ok()?.trim().to_owned();
        Some(Self { pid, start_ticks: start_ticks(&stat)?, boot_id })
    }

    /// Returns true if the process still runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        Self::from_pid(self.pid).is_some_and(|now| now == *self)
    }

    /// Opens a handle; `None` if the process has ended. The PID can be reused only before the
    /// handle is opened, so the identity is checked after that.
    pub(super) fn open_handle(&self) -> Option<ProcessHandle> {
        let handle = ProcessHandle::open(self.pid).ok()?;
        self.is_running().then_some(handle)
    }
}

/// Returns the start time of a process; `None` if it is a zombie. The name may contain any
/// characters and ends at the last parenthesis.
fn start_ticks(stat: &str) -> Option<u64> {
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    if matches!(*fields.get(STATE_FIELD)?, "Z" | "X") {
        return None;
    }
    fields.get(START_FIELD)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_there_and_no_other_is_taken_for_it() {
        let own = ProcessIdentity::from_pid(std::process::id()).unwrap();
        assert!(own.is_running() && own.open_handle().is_some());
        let older = ProcessIdentity { start_ticks: own.start_ticks - 1, ..own.clone() };
        let elsewhere = ProcessIdentity { boot_id: "another".to_owned(), ..own };
        assert!(!older.is_running() && older.open_handle().is_none() && !elsewhere.is_running());
    }

    #[test]
    fn a_name_may_resemble_fields() {
        let stat = |state: &str| {
            format!("7 (a) b 1 (c) {state} 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0\n")
        };
        assert_eq!(start_ticks(&stat("S")), Some(4_711));
        assert_eq!(start_ticks(&stat("Z")), None, "it has ended");
        for bad in ["", "7 (x", "7 (x)", "7 (x) S 1"] {
            assert_eq!(start_ticks(bad), None, "{bad}");
        }
    }
}
