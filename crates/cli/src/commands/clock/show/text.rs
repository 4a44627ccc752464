//! Text of the clock part of a server's status: names with right-aligned values. Pure.

use horolog_ptp::{AnnouncedClock, PtpPortStatus, PtpStatus};
use horolog_report::units::{ABSENT, full_count, human_ns, mean_ns, signed_ns};
use horolog_server::ServerStatus;
use horolog_source::{CalibrationStatus, SelectionState, SourceStatus};

const NAME_WIDTH: usize = 30;
const FIGURE_WIDTH: usize = 14;
/// Width of three columns of values, each after a blank.
const FIGURES_WIDTH: usize = 3 * (FIGURE_WIDTH + 1);
/// Minimum width of names, on a narrow terminal.
const NAME_WIDTH_MIN: usize = 15;

/// Returns the status as lines, without a final newline. Tables of sources and ports are 60 to 75
/// columns wide, depending on `columns`.
pub(super) fn clock_text(status: &ServerStatus, columns: usize) -> String {
    let name_width = columns.saturating_sub(FIGURES_WIDTH).clamp(NAME_WIDTH_MIN, NAME_WIDTH);
    let mut lines = server_lines(status);
    lines.extend(source_lines(status, name_width));
    lines.extend(status.calibration.iter().flat_map(calibration_lines));
    lines.extend(status.ptp.iter().flat_map(|ptp| ptp_lines(ptp, name_width)));
    lines.join("\n")
}

/// Returns the lines about the server and the time that it serves.
fn server_lines(status: &ServerStatus) -> Vec<String> {
    let state = match (status.page_expired, status.synchronised) {
        (true, _) => "not answering: clock page expired".to_owned(),
        (_, true) => format!("synchronised, stratum {}", status.stratum),
        _ => "not synchronised".to_owned(),
    };
    let mut lines = vec![
        format!("server {}, up {:.0} s: {state}", status.pid, status.uptime_s),
        value_row("root dispersion", &time_text(status.root_dispersion_ns)),
        value_row("root delay", &time_text(status.root_delay_ns)),
        value_row("clock page age", &time_text(status.page_age_ns)),
        value_row("system clock steps", &full_count(status.clock.steps)),
    ];
    if let Some(seconds) = status.tai_minus_utc_s {
        lines.push(value_row("TAI minus UTC", &format!("{seconds} s")));
    }
    if let Some(leap) = &status.pending_leap {
        lines.push(format!("  next leap second (list): {leap}"));
    }
    lines
}

/// Returns the table of sources: the offset of the system clock from each, and how many agree.
fn source_lines(status: &ServerStatus, name_width: usize) -> Vec<String> {
    let all = &status.sources;
    if all.is_empty() {
        let served = "sources: none; the system clock is served unchecked";
        return vec![String::new(), served.to_owned()];
    }
    let is_agreeing = |source: &&SourceStatus| {
        matches!(source.state, SelectionState::Selected | SelectionState::Truechimer)
    };
    let vote = match status.selected_source() {
        Some(selected) => format!("serving {}", selected.name),
        None => "none selected".to_owned(),
    };
    let agreeing = all.iter().filter(is_agreeing).count();
    let mut lines = vec![
        String::new(),
        format!("sources: {agreeing} of {} agree, {vote}", all.len()),
        row("  source, state", name_width, ["system ahead", "error bound", "age"]),
    ];
    for source in all {
        let name = format!("  {}, {}", source.name, source.state);
        let age_ns = source.age_ms.map(|ms| ms.saturating_mul(1_000_000));
        let figures = [
            text_or_absent(source.offset_ns, signed_ns),
            text_or_absent(source.uncertainty_ns, time_text),
            text_or_absent(age_ns, time_text),
        ];
        lines.push(row(&name, name_width, figures.each_ref().map(String::as_str)));
        lines.extend(source.reason.as_ref().map(|reason| format!("    {reason}")));
    }
    lines
}

/// Returns an explanation of a calibration state; empty for an unknown one.
fn calibration_state_meaning(state: &str) -> &'static str {
    match state {
        "starting" => "no second identified yet",
        "coarse" => "sentences only, no pulse",
        "locking" => "following pulses, not yet at full precision",
        "locked" => "following pulses",
        "holdover" => "no pulses; running on the estimated frequency",
        "unsynchronised" => "no pulses for longer than the holdover limit",
        _ => "",
    }
}

/// Returns the lines about the calibration of the clock by a GNSS receiver.
fn calibration_lines(status: &CalibrationStatus) -> Vec<String> {
    let CalibrationStatus { name, state, .. } = status;
    let meaning = calibration_state_meaning(state);
    let mut lines = vec![String::new(), format!("calibration by {name}: {state}, {meaning}")];
    lines.extend(status.reason.as_ref().map(|reason| format!("    {reason}")));
    lines.push(match &status.control_ended {
        _ if status.control_suspended => {
            "  system clock not steered: the majority of the sources disagrees".to_owned()
        }
        Some(why) => format!("  system clock no longer steered: {why}"),
        None if status.controls_clock => "  system clock steered".to_owned(),
        None => "  system clock not steered".to_owned(),
    });
    let offset = text_or_absent(status.offset_ns, signed_ns);
    let frequency = text_or_absent(status.frequency_ppb, ppb_text);
    lines.push(value_row("system clock ahead of UTC", &offset));
    lines.push(value_row("uncertainty", &text_or_absent(status.uncertainty_ns, mean_ns)));
    lines.push(value_row("frequency, uncorrected", &frequency));
    lines.push(value_row("pulse noise", &text_or_absent(status.noise_ns, mean_ns)));
    if let Some(held_s) = status.holdover_s {
        let limit_s = status.holdover_limit_s;
        lines.push(value_row("in holdover", &format!("{held_s:.0} of {limit_s:.0} s")));
    }
    lines.push(value_row("steps", &full_count(status.steps)));
    lines.extend(status.pending_leap.as_ref().map(|leap| format!("  next leap second: {leap}")));
    if let Some(seconds) = status.tai_minus_utc_s {
        lines.push(value_row("TAI minus UTC, received", &format!("{seconds} s")));
    }
    lines.extend(status.leap_rejection.as_ref().map(|rejection| format!("    {rejection}")));
    if let Some(failures) = status.log_failures {
        lines.push(value_row("log entries not written", &full_count(failures)));
    }
    lines.extend(calibration_input_lines(status));
    lines
}

/// Returns the lines about the pulses and sentences of a calibration.
fn calibration_input_lines(status: &CalibrationStatus) -> Vec<String> {
    let mut lines = Vec::new();
    for (kind, counts) in [("pulses", &status.pulses), ("sentences", &status.sentences)] {
        for (verdict, count) in counts.by_name() {
            let name = format!("{kind}: {}", verdict.replace('_', " "));
            lines.push(value_row(&name, &full_count(count)));
        }
    }
    let rejected = status.rejected_sentence.as_ref();
    lines.extend(rejected.map(|sentence| format!("  last rejected sentence: {sentence}")));
    for point in &status.allan {
        let name = format!("Allan deviation at {} s", point.tau_s);
        lines.push(value_row(&name, &ppb_text(point.deviation_ppb)));
    }
    lines
}

fn ptp_lines(ptp: &PtpStatus, name_width: usize) -> Vec<String> {
    let (identity, profile) = (&ptp.clock_identity, ptp.profile.name());
    let mut lines = vec![
        String::new(),
        format!("PTP clock {identity}, profile {profile}, domain {}", ptp.domain),
        row("  port, state", name_width, ["HW timestamps", "SW timestamps", "grants"]),
    ];
    for status in &ptp.ports {
        let PtpPortStatus { port, interface, .. } = status;
        let (transport, state) = (status.transport.name(), status.state.name());
        let name = format!("  {port} {interface} {transport}, {state}");
        let counts = [status.hardware_timestamps, status.kernel_timestamps, status.grants as u64];
        let figures = counts.map(full_count);
        lines.push(row(&name, name_width, figures.each_ref().map(String::as_str)));
        if let Some(announced) = &status.announces {
            lines.push(format!("    announces {}", announced_properties(announced)));
        }
        lines.extend(status.better.as_ref().map(|one| format!("    passive for {}", one.port)));
        lines.extend(status.error.as_ref().map(|error| format!("    {error}")));
    }
    lines
}

/// Returns the clock properties that a PTP master announces, as one line.
fn announced_properties(announced: &AnnouncedClock) -> String {
    let accuracy = match announced.accuracy_ns {
        Some(ns) => format!("within {}", time_text(ns)),
        None => "accuracy unknown".to_owned(),
    };
    let scale = match announced.utc_offset_s {
        Some(seconds) if announced.ptp_timescale => format!("TAI (UTC + {seconds} s)"),
        _ => "ARB timescale".to_owned(),
    };
    let traceable = match (announced.time_traceable, announced.frequency_traceable) {
        (true, true) => "traceable",
        (true, false) => "time traceable",
        (false, true) => "frequency traceable",
        (false, false) => "not traceable",
    };
    let (class, leap) = (announced.clock_class, &announced.leap);
    let leap = if leap == "none" { String::new() } else { format!(", {leap}") };
    format!("class {class}, {accuracy}, {scale}, {traceable}{leap}")
}

/// Returns a row with one value.
fn value_row(name: &str, value: &str) -> String {
    row(&format!("  {name}"), NAME_WIDTH, [value, "", ""])
}

/// Returns a row of a name and up to three values; a name that is too long takes a line of its own.
fn row(name: &str, name_width: usize, figures: [&str; 3]) -> String {
    let figures = figures.map(|figure| format!("{figure:>FIGURE_WIDTH$}"));
    let figures = figures.join(" ");
    let figures = figures.trim_end();
    if name.chars().count() > name_width {
        format!("{name}\n{:name_width$} {figures}", "")
    } else {
        format!("{name:name_width$} {figures}")
    }
}

/// Returns the text of a value, [`ABSENT`] if there is none.
fn text_or_absent<T>(value: Option<T>, text: impl Fn(T) -> String) -> String {
    value.map_or_else(|| ABSENT.to_owned(), text)
}

fn time_text(ns: i64) -> String {
    human_ns(ns.unsigned_abs())
}

fn ppb_text(ppb: f64) -> String {
    format!("{ppb:.3} ppb")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::status::sample_status;

    #[test]
    fn text_matches_the_expected_file() {
        let text = clock_text(&sample_status(), usize::MAX);
        assert_eq!(text, include_str!("text.txt").trim_end(), "\n{text}");
    }

    #[test]
    fn announcement_of_an_arbitrary_timescale_is_shown() {
        let ptp = sample_status().ptp.unwrap();
        let own = AnnouncedClock {
            clock_class: 248,
            accuracy_ns: None,
            ptp_timescale: false,
            time_traceable: false,
            frequency_traceable: false,
            leap: "none".into(),
            ..ptp.ports[1].announces.clone().unwrap()
        };
        let expected = "class 248, accuracy unknown, ARB timescale, not traceable";
        assert_eq!(announced_properties(&own), expected);
    }

    #[test]
    fn a_narrow_terminal_keeps_every_figure() {
        let text = clock_text(&sample_status(), 60);
        assert!(text.contains("  gnss, selected\n") && text.contains(" 900 ms"), "{text}");
        let tables = text.lines().filter(|line| line.ends_with(" ms") || line.ends_with("age"));
        assert!(tables.clone().count() >= 3, "{text}");
        assert!(tables.into_iter().all(|line| line.chars().count() <= 60), "{text}");
    }

    #[test]
    fn problems_are_shown() {
        let sources = Vec::new();
        let mut status = ServerStatus { synchronised: false, sources, ..sample_status() };
        let calibration = status.calibration.as_mut().unwrap();
        (calibration.state, calibration.control_ended) = ("locked".into(), None);
        let text = clock_text(&status, 80);
        for expected in [
            ": not synchronised",
            "sources: none; the system clock is served unchecked",
            "locked, following pulses",
            "  system clock steered",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        status.page_expired = true;
        assert!(clock_text(&status, 80).contains("not answering: clock page expired"));
    }
}
