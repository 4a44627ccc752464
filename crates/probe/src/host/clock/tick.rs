//! Kernel tick: rate (HZ) with its source, tick counters and their wrap times. Arithmetic and
//! parsing are pure.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;
use horolog_record::{TickFacts, TickMode, TickRateSource};
use horolog_sys::posix_clock::{PosixClockId, user_hz};

const NS_PER_S: u64 = 1_000_000_000;
const SECONDS_PER_DAY: f64 = 86_400.0;
/// Maximum length of a kernel configuration in bytes, ten times the usual.
const CONFIG_BYTES_MAX: u64 = 4 << 20;
/// Number of steps to observe, and time limit.
const STEPS_OBSERVED: usize = 12;
const OBSERVATION_MAX: Duration = Duration::from_millis(150);
/// Longest gap between two readings, in ns; after a longer one this thread was preempted and the
/// step may be several ticks.
const READING_GAP_MAX_NS: i64 = 500_000;

/// Tick settings in the kernel's configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TickConfig {
    hz: Option<u32>,
    mode: Option<TickMode>,
}

/// Measures the tick of this host.
pub(crate) fn measure_tick() -> TickFacts {
    let config = kernel_config();
    let coarse_resolution_ns =
        PosixClockId::MONOTONIC_COARSE.resolution_ns().ok().and_then(|ns| u64::try_from(ns).ok());
    let timers = fs::read_to_string("/proc/timer_list").unwrap_or_default();
    let measured_ns = coarse_clock_step(PosixClockId::MONOTONIC_COARSE);
    let (path, configured) = config.unzip();
    let (hz, known_by) = ticks_per_second(configured, coarse_resolution_ns, measured_ns).unzip();
    let is_configured = known_by == Some(TickRateSource::Config);
    let facts = TickFacts {
        hz,
        known_by,
        config_file: path.filter(|_| is_configured).map(|path| path.display().to_string()),
        tick_measured_ns: measured_ns,
        coarse_resolution_ns,
        mode: configured.and_then(|config| config.mode),
        high_resolution: PosixClockId::MONOTONIC.resolution_ns().ok().map(|ns| ns == 1),
        user_hz: user_hz(),
        jiffies: jiffies(&timers),
        jiffies_bits: usize::BITS,
        ..TickFacts::default()
    };
    with_wrap_times(facts)
}

/// Returns the tick rate in Hz and its source: kernel configuration, else resolution of the coarse
/// clock, else its observed steps; `None` if none is known.
fn ticks_per_second(
    configured: Option<TickConfig>,
    coarse_resolution_ns: Option<u64>,
    measured_ns: Option<u64>,
) -> Option<(u32, TickRateSource)> {
    let of_tick = |ns: Option<u64>| {
        let hz = (NS_PER_S as f64 / ns.filter(|ns| *ns > 0)? as f64).round();
        // Linux has no tick outside this range.
        (1.0..=10_000.0).contains(&hz).then_some(hz as u32)
    };
    let configured = configured.and_then(|config| config.hz).map(|hz| (hz, TickRateSource::Config));
    configured
        .or_else(|| Some((of_tick(coarse_resolution_ns)?, TickRateSource::Resolution)))
        .or_else(|| Some((of_tick(measured_ns)?, TickRateSource::Measured)))
}

/// Adds the length of a tick, the times in which 32- and 64-bit tick counters wrap, and the time to
/// the next 32-bit wrap (times in days), if HZ is known.
fn with_wrap_times(facts: TickFacts) -> TickFacts {
    let Some(hz) = facts.hz.filter(|hz| *hz > 0) else { return facts };
    let days = |ticks: f64| ticks / f64::from(hz) / SECONDS_PER_DAY;
    let left = |jiffies: u64| days((1_u64 << 32) as f64 - (jiffies & 0xffff_ffff) as f64);
    TickFacts {
        tick_ns: Some(NS_PER_S / u64::from(hz)),
        wrap_32_days: Some(days(2_f64.powi(32))),
        wrap_64_days: Some(days(2_f64.powi(64))),
        next_wrap_32_days: facts.jiffies.map(left),
        ..facts
    }
}

/// Returns the first readable configuration of the running kernel that states HZ, with its path.
fn kernel_config() -> Option<(PathBuf, TickConfig)> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    let paths = [
        "/proc/config.gz".into(),
        format!("/boot/config-{release}"),
        format!("/lib/modules/{release}/config"),
        format!("/usr/lib/modules/{release}/config"),
    ];
    paths.into_iter().map(PathBuf::from).find_map(|path| {
        let configured = parse_config(&read_config(&path)?);
        configured.hz.map(|_| (path, configured))
    })
}

fn read_config(path: &Path) -> Option<String> {
    let file = File::open(path).ok()?;
    let mut text = String::new();
    if path.extension().is_some_and(|extension| extension == "gz") {
        GzDecoder::new(file).take(CONFIG_BYTES_MAX).read_to_string(&mut text).ok()?;
    } else {
        file.take(CONFIG_BYTES_MAX).read_to_string(&mut text).ok()?;
    }
    Some(text)
}

pub(super) fn parse_config(text: &str) -> TickConfig {
    let set = |name: &str| {
        text.lines().any(|line| line.strip_prefix(name).is_some_and(|rest| rest == "=y"))
    };
    let hz = text.lines().find_map(|line| line.strip_prefix("CONFIG_HZ=")?.parse().ok());
    let modes = [
        ("CONFIG_NO_HZ_FULL", TickMode::Full),
        ("CONFIG_NO_HZ_IDLE", TickMode::Idle),
        ("CONFIG_HZ_PERIODIC", TickMode::Periodic),
    ];
    let mode = modes.into_iter().find(|(name, _)| set(name)).map(|(_, mode)| mode);
    TickConfig { hz, mode }
}

/// Parses jiffies from `/proc/timer_list`, which only root may read.
pub(crate) fn jiffies(timer_list: &str) -> Option<u64> {
    timer_list.lines().find_map(|line| line.trim().strip_prefix("jiffies: ")?.trim().parse().ok())
}

/// Returns the smallest observed step of a coarse clock in ns, which is one tick; `None` if none
/// was observed.
pub(super) fn coarse_clock_step(clock: PosixClockId) -> Option<u64> {
    let begun = Instant::now();
    let read = || {
        let is_enough = begun.elapsed() > OBSERVATION_MAX;
        (!is_enough).then_some((PosixClockId::MONOTONIC.now_ns().ok()?, clock.now_ns().ok()?))
    };
    smallest_step(read)
}

/// Returns the smallest of up to [`STEPS_OBSERVED`] steps in ns; `read` returns an instant and the
/// clock's value, both in ns, or `None` to end. `None` if no step was observed.
fn smallest_step(read: impl Fn() -> Option<(i64, i64)>) -> Option<u64> {
    let mut steps = Vec::with_capacity(STEPS_OBSERVED);
    let mut last = read()?;
    while steps.len() < STEPS_OBSERVED
        && let Some(now) = read()
    {
        if now.1 != last.1 && now.0 - last.0 < READING_GAP_MAX_NS {
            steps.push(u64::try_from(now.1 - last.1).ok()?);
        }
        last = now;
    }
    steps.into_iter().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "CONFIG_HZ_PERIODIC=n\nCONFIG_NO_HZ_IDLE=y\n# CONFIG_NO_HZ_FULL is not set\n\
                          CONFIG_HZ_300=y\nCONFIG_HZ=300\n";

    #[test]
    fn ticks_that_pass_while_the_thread_is_away_make_no_step() {
        let of = |readings: &[(i64, i64)]| {
            let left = std::cell::RefCell::new(readings.iter().copied());
            smallest_step(|| left.borrow_mut().next())
        };
        // Not scheduled for two ticks, then one step of a tick, and one that was late.
        let readings = [(0, 0), (8_100_000, 8), (8_200_000, 8), (8_300_000, 12), (8_400_000, 20)];
        assert_eq!(of(&readings), Some(4));
        assert_eq!(of(&readings[..3]), None);
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn the_configuration_precedes_the_measured_rate() {
        let configured = parse_config(CONFIG);
        assert_eq!(configured, TickConfig { hz: Some(300), mode: Some(TickMode::Idle) });
        let known = |config, stated, measured| ticks_per_second(config, stated, measured);
        let (stated, measured) = (Some(4_000_000), Some(10_000_000));
        assert_eq!(known(Some(configured), stated, measured), Some((300, TickRateSource::Config)));
        assert_eq!(known(None, stated, measured), Some((250, TickRateSource::Resolution)));
        assert_eq!(known(None, None, measured), Some((100, TickRateSource::Measured)));
        assert_eq!(known(None, Some(0), Some(1)), None);
        // 300 does not divide 10⁹: the tick is 3,333,333 ns.
        assert_eq!(known(None, Some(3_333_333), None), Some((300, TickRateSource::Resolution)));
    }

    #[test]
    fn counters_are_through_when_they_must_be() {
        let of = |hz, jiffies| {
            with_wrap_times(TickFacts { hz: Some(hz), jiffies, ..TickFacts::default() })
        };
        // The figure that is known best: 497 days at 100 ticks a second.
        assert!((of(100, None).wrap_32_days.unwrap() - 497.1).abs() < 0.01);
        assert!((of(1_000, None).wrap_32_days.unwrap() - 49.71).abs() < 0.01);
        assert!(of(1_000, None).wrap_64_days.unwrap() > 365e6 * 365.0);
        assert_eq!(of(250, None).tick_ns, Some(4_000_000));
        // A kernel begins five minutes before the 32-bit counter is through.
        let begin = (1_u64 << 32) - 300 * 250;
        let left = of(250, Some(begin)).next_wrap_32_days.unwrap();
        assert!((left * SECONDS_PER_DAY - 300.0).abs() < 0.01, "{left}");
        assert_eq!(with_wrap_times(TickFacts::default()).wrap_32_days, None);
    }

    #[test]
    fn the_count_is_found_among_the_timers() {
        let text = "Timer List Version: v0.10\n  .nr_events:  3\njiffies: 4295101234\n\n";
        assert_eq!(jiffies(text), Some(4_295_101_234));
        assert_eq!(jiffies(""), None);
    }

    #[test]
    fn this_machine_has_a_tick() {
        let facts = measure_tick();
        let (hz, tick_ns) = (facts.hz.unwrap(), facts.tick_ns.unwrap());
        assert!((10..=10_000).contains(&hz), "{facts:?}");
        assert_eq!(facts.coarse_resolution_ns.map(|ns| ns.abs_diff(tick_ns) < 1_000), Some(true));
    }
}
