//! Clock devices: RTCs, read at the change of their second, and PHCs. Empty on a host without any.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use horolog_record::{PhcFacts, RtcFacts};
use horolog_sys::phc::PhcDevice;
use horolog_sys::posix_clock::PosixClockId;

const NS_PER_S: i64 = 1_000_000_000;
/// Longest wait for the second of an RTC to change, including its read latency.
const SECOND_MAX: Duration = Duration::from_millis(1_300);

/// Reads all real-time clocks listed under the root directory `root`; each takes up to
/// [`SECOND_MAX`].
pub(super) fn read_rtcs(root: &Path) -> Vec<RtcFacts> {
    entries(&root.join("sys/class/rtc")).into_iter().map(|path| read_rtc(&path)).collect()
}

/// Reads all PTP hardware clocks listed under the root directory `root`.
pub(super) fn read_phcs(root: &Path) -> Vec<PhcFacts> {
    let named = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.to_owned();
        Some(read_phc(&root.join("dev").join(name), read_line(&path.join("clock_name"))))
    };
    entries(&root.join("sys/class/ptp")).into_iter().filter_map(named).collect()
}

fn read_rtc(path: &Path) -> RtcFacts {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let epoch = path.join("since_epoch");
    let read = || read_line(&epoch)?.parse::<i64>().ok();
    let reading = system_ahead_at_second(&read);
    RtcFacts {
        name,
        driver: read_line(&path.join("name")),
        set_system_clock: read_line(&path.join("hctosys")).map(|text| text == "1"),
        system_ahead_ns: reading.as_ref().ok().map(|reading| reading.0),
        error_bound_ns: reading.as_ref().ok().map(|reading| reading.1),
        error: reading.err().map(str::to_owned),
    }
}

/// Returns the system clock minus a clock of whole seconds, measured when its second changes, and
/// the error bound, both in ns. The error is the reason: unreadable, or no change within
/// [`SECOND_MAX`].
fn system_ahead_at_second(read: &dyn Fn() -> Option<i64>) -> Result<(i64, u64), &'static str> {
    const UNREAD: &str = "it cannot be read";
    let system = || PosixClockId::REALTIME.now_ns().map_err(|_| UNREAD);
    let begun = Instant::now();
    let first = read().ok_or(UNREAD)?;
    let mut before = system()?;
    while begun.elapsed() < SECOND_MAX {
        let second = read().ok_or(UNREAD)?;
        let after = system()?;
        if second != first {
            let middle = before + (after - before) / 2;
            let ahead = middle.saturating_sub(second.saturating_mul(NS_PER_S));
            return Ok((ahead, (after - before).unsigned_abs() / 2 + 1));
        }
        before = after;
        // Reading an RTC is slow, so a busy loop would not be more accurate.
        std::thread::sleep(Duration::from_micros(500));
    }
    Err("it is stopped: its second did not change within 1.3 s")
}

fn read_phc(device: &Path, clock_name: Option<String>) -> PhcFacts {
    let reading = PhcDevice::open(device).and_then(|mut phc| phc.read());
    let system_ahead = reading.as_ref().ok().map(|reading| {
        let width = (reading.after - reading.before).as_ns();
        let middle = reading.before.as_ns() + width / 2;
        (middle.saturating_sub(reading.phc_ns), width.unsigned_abs() / 2 + 1)
    });
    PhcFacts {
        device: device.display().to_string(),
        clock_name,
        system_ahead_ns: system_ahead.map(|reading| reading.0),
        error_bound_ns: system_ahead.map(|reading| reading.1),
        error: reading.err().map(|error| error.to_string()),
    }
}

/// Returns the paths in a directory, sorted; none if it cannot be read.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(directory).into_iter().flatten();
    let mut paths: Vec<_> = listed.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

/// Returns the first line of a file, trimmed; `None` if it is empty or unreadable.
pub(super) fn read_line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_behind_is_found_behind() {
        const BEHIND_NS: i64 = 7_300_000_000;
        let read = || Some((PosixClockId::REALTIME.now_ns().unwrap() - BEHIND_NS) / NS_PER_S);
        let (ahead, error_bound) = system_ahead_at_second(&read).unwrap();
        assert!((ahead - BEHIND_NS).unsigned_abs() <= error_bound, "{ahead} ± {error_bound}");
    }

    #[test]
    fn a_clock_that_is_stopped_or_unreadable_is_reported() {
        assert!(system_ahead_at_second(&|| Some(5)).unwrap_err().contains("it is stopped"));
        assert_eq!(system_ahead_at_second(&|| None), Err("it cannot be read"));
    }

    #[test]
    fn a_machine_without_devices_has_none() {
        let nowhere = Path::new("/nowhere/at/all");
        assert_eq!((read_rtcs(nowhere), read_phcs(nowhere)), (Vec::new(), Vec::new()));
        let there = read_phc(Path::new("/dev/null"), Some("nothing".to_owned()));
        assert!(there.error.is_some() && there.system_ahead_ns.is_none(), "{there:?}");
    }
}
