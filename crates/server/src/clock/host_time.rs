//! Time that a host knows when a server starts: that of its RTC, and the time last saved to disk. A
//! clock behind the saved time was set back or stood still.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use horolog_source::{ClockPageReader, PlausibilityRuleParameters};
use horolog_sys::clock::{ClockMonotonic, ClockRealtime};
use horolog_sys::explain::explain;
use horolog_time::{Clock, NS_PER_S, Span, Timestamp, Utc};
use horolog_wire::ntp::LeapIndicator;

use super::sources::{SharedSourceState, SourceSelectionOutcome};
use crate::config::PlausibilityConfig;
use crate::periodic::PeriodicThread;
use crate::start_error::StartError;

/// Interval at which the need to save the time is checked. [`SAVE_INTERVAL`] is that at which it is
/// saved, long because flash memory wears.
const CHECK_INTERVAL: Duration = Duration::from_mins(1);
const SAVE_INTERVAL: Duration = Duration::from_hours(1);
/// Length of the saved text, in bytes: seconds since 1970 in decimal and a line feed. The fixed
/// width lets each text replace the previous one completely.
const SAVED_TEXT_LEN: usize = 21;

/// Rules by which times are plausible, as known at the start of a server, and the file of the saved
/// time.
#[derive(Default)]
pub(crate) struct PlausibilityAtStart {
    /// Rules by which times are plausible.
    pub(crate) plausibility_rules: PlausibilityRuleParameters,
    /// Notice about the file of the saved time, if it is unusable.
    notice: Option<String>,
    file: Option<(PathBuf, File)>,
}

impl PlausibilityAtStart {
    /// Reads the RTC, and opens and reads the file with the time last saved, if one is configured.
    /// The file is created if missing, because the permission may be lacking later. A file that
    /// cannot be used only causes a notice.
    pub(crate) fn open(config: &PlausibilityConfig) -> Self {
        let now = ClockMonotonic.now();
        let minus_monotonic =
            |rtc: Timestamp<Utc>| Span::from_ns(rtc.as_ns().saturating_sub(now.as_ns()));
        let rtc = rtc_time(Path::new("/sys/class/rtc")).map(minus_monotonic);
        let (build, reach) = (config.build, config.reach);
        let plausibility_rules =
            PlausibilityRuleParameters { build, validity: reach, saved: None, rtc };
        let Some(path) = &config.saved_time else {
            return Self { plausibility_rules, ..Self::default() };
        };
        let mut options = OpenOptions::new();
        let opened = options.read(true).write(true).create(true).truncate(false).open(path);
        let shown = path.display();
        let failed =
            |error: io::Error| format!("cannot save the time in {shown}: {}", explain(&error));
        let file = match opened {
            Ok(file) => file,
            Err(error) => {
                return Self { plausibility_rules, notice: Some(failed(error)), file: None };
            }
        };
        let (saved, notice) = match read_saved_time(&file, &plausibility_rules) {
            Ok(saved) => (saved, None),
            Err(why) => (None, Some(format!("the time saved in {shown} is ignored: {why}"))),
        };
        let plausibility_rules = PlausibilityRuleParameters { saved, ..plausibility_rules };
        Self { plausibility_rules, notice, file: Some((path.clone(), file)) }
    }
}

/// Returns the time of the RTC by which the kernel set the system clock at boot (`hctosys`),
/// otherwise of the first readable RTC in `directory`; `None` if none is readable.
fn rtc_time(directory: &Path) -> Option<Timestamp<Utc>> {
    let text = |path: PathBuf| fs::read_to_string(path).ok();
    let mut clocks: Vec<_> =
        fs::read_dir(directory).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    let sets_clock = |path: &Path| text(path.join("hctosys")).is_some_and(|set| set.trim() == "1");
    clocks.sort_by_cached_key(|path| (!sets_clock(path), path.clone()));
    let read = |path: &PathBuf| text(path.join("since_epoch"))?.trim().parse().ok();
    clocks.iter().find_map(read).map(|seconds| Timestamp::from_timespec(seconds, 0))
}

/// Returns the saved time; `None` if the file is empty, or an error that states why the time is
/// unusable.
fn read_saved_time(
    file: &File,
    plausibility_rules: &PlausibilityRuleParameters,
) -> Result<Option<Timestamp<Utc>>, String> {
    let mut text = [0; SAVED_TEXT_LEN];
    let length = file
        .read_at(&mut text, 0)
        .map_err(|error| format!("cannot read the file: {}", explain(&error)))?;
    if length == 0 {
        return Ok(None);
    }
    let text = str::from_utf8(&text[..length]).unwrap_or_default().trim();
    let seconds = text.parse().map_err(|_| "the file contains no number of seconds")?;
    let saved = Timestamp::from_timespec(seconds, 0);
    plausibility_rules.check(saved).map_err(|why| why.to_string())?;
    Ok(Some(saved))
}

/// Replaces the saved time, in whole seconds, and waits until it is on disk.
fn write_saved_time(file: &File, utc: Timestamp<Utc>) -> io::Result<()> {
    let text =
        format!("{:0width$}\n", utc.as_ns().div_euclid(NS_PER_S), width = SAVED_TEXT_LEN - 1);
    file.write_all_at(text.as_bytes(), 0)?;
    file.sync_data()
}

/// Thread that saves the served time periodically and at the end, while that time comes from a
/// confirmed source. The time of an unconfirmed clock is not saved: if it is wrong, it could rule
/// out the correct time at the next start.
#[derive(Debug)]
pub(crate) struct TimeSaveThread {
    saver: Option<Arc<TimeSaver>>,
    thread: PeriodicThread,
}

impl TimeSaveThread {
    /// Passes on the notice about the file, and starts the thread if there is a file, unless the
    /// served time is deliberately wrong.
    pub(crate) fn start(
        host: PlausibilityAtStart,
        is_test: bool,
        page: &ClockPageReader,
        notices: &Arc<SharedSourceState>,
    ) -> Result<Self, StartError> {
        host.notice.into_iter().for_each(|notice| notices.push_notice(notice));
        let Some((path, file)) = host.file.filter(|_| !is_test) else {
            return Ok(Self { saver: None, thread: PeriodicThread::default() });
        };
        let (page, notices) = (page.clone(), Arc::clone(notices));
        let saver =
            Arc::new(TimeSaver { path, file, page, notices, failed: AtomicBool::default() });
        let shared_saver = Arc::clone(&saver);
        let begin = move || {
            let mut last: Option<Instant> = None;
            move || {
                if last.is_none_or(|last| last.elapsed() >= SAVE_INTERVAL) && shared_saver.save() {
                    last = Some(Instant::now());
                }
            }
        };
        let thread = PeriodicThread::start("saved-time", CHECK_INTERVAL, begin)
            .map_err(StartError::Thread)?;
        Ok(Self { saver: Some(saver), thread })
    }

    /// Saves the time now, if it is synchronised and confirmed.
    pub(crate) fn save(&self) {
        self.saver.iter().for_each(|saver| {
            saver.save();
        });
    }

    /// Returns true if the thread has ended without being stopped.
    pub(crate) fn has_died(&self) -> bool {
        self.thread.has_died()
    }
}

#[derive(Debug)]
struct TimeSaver {
    path: PathBuf,
    file: File,
    page: ClockPageReader,
    notices: Arc<SharedSourceState>,
    failed: AtomicBool,
}

impl TimeSaver {
    /// Saves the time if it is synchronised and confirmed; returns true if it was saved. A failure
    /// is reported once, until saving succeeds again.
    fn save(&self) -> bool {
        let (page, now) = (self.page.read(), ClockMonotonic.now());
        let is_confirmed = self.notices.reading(now).is_some_and(is_confirmed);
        if page.variables.leap == LeapIndicator::Unsynchronised || !is_confirmed {
            return false;
        }
        let Some(ntp) = page.timebase.ntp_at(now) else { return false };
        match write_saved_time(&self.file, ntp.to_utc(ClockRealtime.now())) {
            Ok(()) => self.failed.store(false, Ordering::Relaxed),
            Err(_) if self.failed.swap(true, Ordering::Relaxed) => {}
            Err(error) => self.notices.push_notice(format!(
                "cannot save the time in {}: {}; retrying",
                self.path.display(),
                explain(&error)
            )),
        }
        !self.failed.load(Ordering::Relaxed)
    }
}

/// Returns true if a source is selected and its time is confirmed.
fn is_confirmed(reading: SourceSelectionOutcome) -> bool {
    matches!(reading, SourceSelectionOutcome::Selected(report) if !report.is_unconfirmed)
}

#[cfg(test)]
mod tests {
    use horolog_source::{Slew, SourceEstimate};

    use super::*;

    #[test]
    fn a_saved_time_is_read_again_and_damage_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("time");
        let open = |path: &Path| {
            let saved_time = Some(path.to_owned());
            PlausibilityAtStart::open(&PlausibilityConfig {
                saved_time,
                ..PlausibilityConfig::default()
            })
        };
        let host = open(&path);
        assert_eq!((host.plausibility_rules.saved, host.notice), (None, None), "the first start");
        let (_, file) = host.file.unwrap();
        for seconds in [1_900_000_000, 1_800_000_000] {
            write_saved_time(&file, Timestamp::from_timespec(seconds, 999_999_999)).unwrap();
            let host = open(&path);
            let saved = Some(Timestamp::from_timespec(seconds, 0));
            assert_eq!(
                (host.plausibility_rules.saved, host.notice),
                (saved, None),
                "never later than it was"
            );
        }
        for (bad, why) in [
            ("\n", "no number"),
            ("yesterday", "no number"),
            ("99999999999", "reported time 2262-04-11 is after 2045-12-31"),
            ("1600000000", "reported time 2020-09-13 is before 2026-01-01"),
            ("-5", "reported time 1969-12-31 is before"),
            ("18e8", "no number"),
            ("\u{0}\u{0}", "no number"),
        ] {
            fs::write(&path, bad).unwrap();
            let host = open(&path);
            assert_eq!(host.plausibility_rules.saved, None, "{bad}");
            let notice = host.notice.unwrap();
            assert!(notice.contains("is ignored: ") && notice.contains(why), "{bad}: {notice}");
            assert!(host.file.is_some(), "it is written anew");
        }
        let file = File::options().write(true).open(&path).unwrap();
        let why = read_saved_time(&file, &PlausibilityRuleParameters::default()).unwrap_err();
        assert!(why.starts_with("cannot read the file: "), "{why}");
        let notice = open(Path::new("/there-is-none/time")).notice.unwrap();
        assert!(notice.starts_with("cannot save the time in /there-is-none/time: "), "{notice}");
    }

    #[test]
    fn no_time_is_saved_that_no_source_confirmed() {
        let report = |is_unconfirmed| SourceEstimate {
            at: Timestamp::from_ns(0),
            offset: Span::ZERO,
            frequency_ppb: 0,
            slew: Slew::default(),
            uncertainty: Span::ZERO,
            leap: LeapIndicator::None,
            tai_minus_utc_s: None,
            next_leap: None,
            stratum: 1,
            reference_id: *b"GPS\0",
            reference: Timestamp::from_ns(0),
            root_delay: Span::ZERO,
            root_dispersion: Span::ZERO,
            is_unconfirmed,
            host_clock: None,
        };
        assert!(is_confirmed(SourceSelectionOutcome::Selected(report(false))));
        for reading in [
            SourceSelectionOutcome::Selected(report(true)),
            SourceSelectionOutcome::NoSource,
            SourceSelectionOutcome::NotPolled,
        ] {
            assert!(!is_confirmed(reading), "{reading:?}");
        }
    }

    #[test]
    fn the_rtc_that_set_the_clock_is_read() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(rtc_time(directory.path()), None);
        for (name, sets, seconds) in [("rtc0", "0", "5"), ("rtc1", "1", "1800000000")] {
            let own = directory.path().join(name);
            fs::create_dir(&own).unwrap();
            fs::write(own.join("hctosys"), format!("{sets}\n")).unwrap();
            fs::write(own.join("since_epoch"), format!("{seconds}\n")).unwrap();
        }
        assert_eq!(rtc_time(directory.path()), Some(Timestamp::from_timespec(1_800_000_000, 0)));
        fs::write(directory.path().join("rtc1/since_epoch"), "").unwrap();
        let next = Some(Timestamp::from_timespec(5, 0));
        assert_eq!(rtc_time(directory.path()), next, "where one cannot be read");
        assert_eq!(rtc_time(Path::new("/there-is-none")), None);
    }
}
