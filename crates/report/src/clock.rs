//! Common words of the terminal and the HTML report on a clock's simulation.

use std::collections::BTreeMap;

use horolog_record::{ClockMethod, ClockMethodKind, ClockOutage, ClockResult};

use crate::units::{full_count, human_ns, mean_ns, percent};

/// Measurements in the literature, and the reason for which they serve for orientation only.
pub(crate) const LITERATURE: &str = "For reference: Liu, Wu and Wang 2020 measured a mean of \
                                     16.5 µs, a standard deviation of 6.93 µs and an RMS of 17.9 \
                                     µs on their server with a time analyser over a cable. These \
                                     include network and software, so they are not comparable \
                                     with a simulation.";

/// Explanation of the figures.
pub(crate) const DEFINITION: &str = "Errors are relative to true time, sampled once a second at \
                                     a random instant, from the first lock of the servo on, \
                                     without outages and the minute after each. Recovery: the \
                                     error stays within 1 µs for a minute.";

/// Returns a method's name.
pub(crate) const fn method_name(kind: ClockMethodKind) -> &'static str {
    match kind {
        ClockMethodKind::Servo => "servo",
        ClockMethodKind::SetAtPulse => "set at each pulse",
    }
}

/// Formats a time in days, hours, minutes and seconds, without those that are 0.
pub(crate) fn long_time(seconds: u64) -> String {
    let parts = [
        (seconds / 86_400, "d"),
        (seconds / 3_600 % 24, "h"),
        (seconds / 60 % 60, "min"),
        (seconds % 60, "s"),
    ];
    let parts = parts.into_iter().filter(|(count, _)| *count > 0);
    let texts: Vec<_> = parts.map(|(count, unit)| format!("{count} {unit}")).collect();
    if texts.is_empty() { "0 s".to_owned() } else { texts.join(" ") }
}

/// Formats seconds since the beginning of a run: with minutes and hours if they are many.
pub(crate) fn since_begin(seconds: f64) -> String {
    const MANY: f64 = 600.0;
    if !(MANY..1e15).contains(&seconds) {
        return format!("{seconds:.2} s");
    }
    // Rounded to the shown digits, so that no minute has 60 seconds.
    let hundredths = (seconds * 100.0).round() as u64;
    let (minutes, rest) = (hundredths / 6_000 * 60, hundredths % 6_000);
    if rest == 0 {
        return long_time(minutes);
    }
    format!("{} {:.2} s", long_time(minutes), rest as f64 / 100.0)
}

/// Returns the conditions of the simulation.
pub(crate) fn conditions(result: &ClockResult) -> String {
    let conditions = &result.conditions;
    let mut texts = vec![
        format!("pulses ± {}", mean_ns(conditions.pulse_noise_ns)),
        format!("in steps of {}", mean_ns(conditions.quantisation_ns)),
        format!(
            "{} of them late by {} on average",
            percent(conditions.latency_tail),
            mean_ns(conditions.latency_tail_ns)
        ),
    ];
    if conditions.latency_ns > 0.0 {
        texts.push(format!("all {} late", mean_ns(conditions.latency_ns)));
    }
    if conditions.pulses_per_second != 1 {
        texts.push(format!("{} pulses a second", conditions.pulses_per_second));
    }
    let shares = [
        (conditions.bad_sentences, "bad sentences"),
        (conditions.false_pulses, "false pulses"),
        (conditions.missing_pulses, "missing pulses"),
    ];
    let shares = shares.into_iter().filter(|(share, _)| *share > 0.0);
    texts.extend(shares.map(|(share, what)| format!("{} {what}", percent(share))));
    texts.join(", ")
}

/// Returns the results of one outage in a run of this many seconds.
pub(crate) fn outage(method: &ClockMethod, outage: &ClockOutage, duration_s: u64) -> String {
    let error =
        format!("{} off by up to {}", method_name(method.kind), human_ns(outage.error_max_ns));
    let what = match outage.recovered_after_s {
        _ if outage.begin_s >= duration_s => "not started when the run ended".to_owned(),
        _ if outage.begin_s.saturating_add(outage.length_s) > duration_s => {
            format!("{error}, not over when the run ended")
        }
        Some(seconds) => format!("{error}, recovered {} after its end", long_time(seconds)),
        None => format!("{error}, not recovered"),
    };
    let (length, begin) = (long_time(outage.length_s), long_time(outage.begin_s));
    format!("{length} without signal, {begin} after the start: {what}")
}

/// Returns the counts, each with its meaning.
pub(crate) fn counts(result: &ClockResult) -> Vec<String> {
    let counts = &result.counts;
    let listed = |title: &str, counts: &BTreeMap<String, u64>| {
        let texts: Vec<_> =
            counts.iter().map(|(name, count)| format!("{name} {}", full_count(*count))).collect();
        (!texts.is_empty()).then(|| format!("{title}: {}", texts.join(", ")))
    };
    let lines = [
        listed("pulses", &counts.pulses),
        listed("rejected pulses", &counts.pulse_rejects),
        listed("rejected sentences", &counts.sentence_rejects),
        Some(format!(
            "wrong seconds {}, clock steps {}",
            full_count(counts.wrong_labels),
            full_count(counts.steps)
        )),
    ];
    lines.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_runs_are_shown_in_minutes_and_hours() {
        assert_eq!(since_begin(59.994), "59.99 s");
        assert_eq!(since_begin(1_800.0), "30 min");
        assert_eq!(since_begin(5_399.999), "1 h 30 min");
        assert_eq!(since_begin(5_430.5), "1 h 30 min 30.50 s");
        assert_eq!(since_begin(f64::NAN), "NaN s");
    }

    #[test]
    fn an_outage_that_outlasts_the_run_is_not_one_without_recovery() {
        let sentence = |begin_s, length_s| {
            let error_max_ns = 3_000;
            let one = ClockOutage { begin_s, length_s, error_max_ns, recovered_after_s: None };
            outage(&crate::fixture::clock().methods[0], &one, 3_600)
        };
        assert!(sentence(600, 60).ends_with("servo off by up to 3.00 µs, not recovered"));
        assert!(sentence(600, 3_600).ends_with("3.00 µs, not over when the run ended"));
        assert!(sentence(3_600, 60).ends_with("start: not started when the run ended"));
    }

    #[test]
    fn times_are_written_without_what_is_0() {
        assert_eq!(long_time(0), "0 s");
        assert_eq!(long_time(604_800), "7 d");
        assert_eq!(long_time(90_061), "1 d 1 h 1 min 1 s");
    }
}
