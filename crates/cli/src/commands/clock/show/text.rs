//! Text of the clock part of a server's status: names with right-aligned values. Pure.

use horolog_report::units::{ABSENT, full_count, human_ns, mean_ns, signed_ns};
use serde_json::Value;

const NAME_WIDTH: usize = 30;
const FIGURE_WIDTH: usize = 14;
/// Width of three columns of values, each after a blank.
const FIGURES_WIDTH: usize = 3 * (FIGURE_WIDTH + 1);
/// Minimum width of names, on a narrow terminal.
const NAME_WIDTH_MIN: usize = 15;

/// Returns the status as lines, without a final newline. Tables of sources and ports are 60 to 75
/// columns wide, depending on `columns`.
pub(super) fn clock_text(status: &Value, columns: usize) -> String {
    let name_width = columns.saturating_sub(FIGURES_WIDTH).clamp(NAME_WIDTH_MIN, NAME_WIDTH);
    let mut lines = server_lines(status);
    lines.extend(source_lines(&status["sources"], name_width));
    if let calibration @ Value::Object(_) = &status["calibration"] {
        lines.extend(calibration_lines(calibration));
    }
    if let ptp @ Value::Object(_) = &status["ptp"] {
        lines.extend(ptp_lines(ptp, name_width));
    }
    lines.join("\n")
}

/// Returns the lines about the server and the time that it serves.
fn server_lines(status: &Value) -> Vec<String> {
    let state = match (status["page_expired"].as_bool(), status["synchronised"].as_bool()) {
        (Some(true), _) => "not answering: clock page expired".to_owned(),
        (_, Some(true)) => format!("synchronised, stratum {}", value_text(&status["stratum"])),
        _ => "not synchronised".to_owned(),
    };
    let uptime = status["uptime_s"].as_f64().unwrap_or(0.0);
    let mut lines = vec![
        format!("server {}, up {uptime:.0} s: {state}", value_text(&status["pid"])),
        value_row("root dispersion", &time_text(&status["root_dispersion_ns"])),
        value_row("root delay", &time_text(&status["root_delay_ns"])),
        value_row("clock page age", &time_text(&status["page_age_ns"])),
        value_row("system clock steps", &count_text(&status["clock"]["steps"])),
    ];
    if let Some(seconds) = status["tai_minus_utc_s"].as_i64() {
        lines.push(value_row("TAI minus UTC", &format!("{seconds} s")));
    }
    if let Some(leap) = status["pending_leap"].as_str() {
        lines.push(format!("  next leap second (list): {leap}"));
    }
    lines
}

/// Returns the table of sources: the offset of the system clock from each, and how many agree.
fn source_lines(sources: &Value, name_width: usize) -> Vec<String> {
    let all = sources.as_array().map_or(&[][..], Vec::as_slice);
    if all.is_empty() {
        let served = "sources: none; the system clock is served unchecked";
        return vec![String::new(), served.to_owned()];
    }
    let state = |source: &Value| source["state"].as_str().unwrap_or_default().to_owned();
    let agreeing = all.iter().filter(|one| ["selected", "truechimer"].contains(&&*state(one)));
    let vote = match all.iter().find(|source| state(source) == "selected") {
        Some(selected) => format!("serving {}", value_text(&selected["name"])),
        None => "none selected".to_owned(),
    };
    let mut lines = vec![
        String::new(),
        format!("sources: {} of {} agree, {vote}", agreeing.count(), all.len()),
        row("  source, state", name_width, ["system ahead", "error bound", "age"]),
    ];
    for source in all {
        let name = format!("  {}, {}", value_text(&source["name"]), state(source));
        let age = source["age_ms"].as_i64().map(|ms| ms.saturating_mul(1_000_000));
        let figures = [
            signed_time_text(&source["offset_ns"]),
            time_text(&source["uncertainty_ns"]),
            age.map_or_else(absent_text, |ns| human_ns(ns.unsigned_abs())),
        ];
        lines.push(row(&name, name_width, figures.each_ref().map(String::as_str)));
        if let Some(reason) = source["reason"].as_str() {
            lines.push(format!("    {reason}"));
        }
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
fn calibration_lines(status: &Value) -> Vec<String> {
    let state = value_text(&status["state"]);
    let mut lines = vec![
        String::new(),
        format!(
            "calibration by {}: {state}, {}",
            value_text(&status["name"]),
            calibration_state_meaning(&state)
        ),
    ];
    if let Some(reason) = status["reason"].as_str() {
        lines.push(format!("    {reason}"));
    }
    let steered = match (status["controls_clock"].as_bool(), status["control_ended"].as_str()) {
        _ if status["control_suspended"] == true => {
            "  system clock not steered: the majority of the sources disagrees".to_owned()
        }
        (_, Some(why)) => format!("  system clock no longer steered: {why}"),
        (Some(true), None) => "  system clock steered".to_owned(),
        _ => "  system clock not steered".to_owned(),
    };
    lines.push(steered);
    lines.push(value_row("system clock ahead of UTC", &signed_time_text(&status["offset_ns"])));
    lines.push(value_row("uncertainty", &mean_time_text(&status["uncertainty_ns"])));
    lines.push(value_row("frequency, uncorrected", &ppb_text(&status["frequency_ppb"])));
    lines.push(value_row("pulse noise", &mean_time_text(&status["noise_ns"])));
    if let Some(held_s) = status["holdover_s"].as_f64() {
        let limit_s = status["holdover_limit_s"].as_f64().unwrap_or(0.0);
        lines.push(value_row("in holdover", &format!("{held_s:.0} of {limit_s:.0} s")));
    }
    lines.push(value_row("steps", &count_text(&status["steps"])));
    if let Some(leap) = status["pending_leap"].as_str() {
        lines.push(format!("  next leap second: {leap}"));
    }
    if let Some(seconds) = status["tai_minus_utc_s"].as_i64() {
        lines.push(value_row("TAI minus UTC, received", &format!("{seconds} s")));
    }
    if let Some(rejection) = status["leap_rejection"].as_str() {
        lines.push(format!("    {rejection}"));
    }
    if let Some(failures) = status["log_failures"].as_u64() {
        lines.push(value_row("log entries not written", &full_count(failures)));
    }
    for what in ["pulses", "sentences"] {
        for (verdict, number) in status[what].as_object().into_iter().flatten() {
            let name = format!("{what}: {}", verdict.replace('_', " "));
            lines.push(value_row(&name, &count_text(number)));
        }
    }
    if let Some(rejected) = status["rejected_sentence"].as_str() {
        lines.push(format!("  last rejected sentence: {rejected}"));
    }
    for point in status["allan"].as_array().into_iter().flatten() {
        let name = format!("Allan deviation at {} s", value_text(&point["tau_s"]));
        lines.push(value_row(&name, &ppb_text(&point["deviation_ppb"])));
    }
    lines
}

fn ptp_lines(ptp: &Value, name_width: usize) -> Vec<String> {
    let (identity, profile) = (value_text(&ptp["clock_identity"]), value_text(&ptp["profile"]));
    let mut lines = vec![
        String::new(),
        format!("PTP clock {identity}, profile {profile}, domain {}", value_text(&ptp["domain"])),
        row("  port, state", name_width, ["HW timestamps", "SW timestamps", "grants"]),
    ];
    for port in ptp["ports"].as_array().into_iter().flatten() {
        let [number, interface, transport, state] =
            ["port", "interface", "transport", "state"].map(|field| value_text(&port[field]));
        let figures = ["hardware_timestamps", "kernel_timestamps", "grants"];
        let figures = figures.map(|field| count_text(&port[field]));
        let name = format!("  {number} {interface} {transport}, {state}");
        lines.push(row(&name, name_width, figures.each_ref().map(String::as_str)));
        if let announced @ Value::Object(_) = &port["announces"] {
            lines.push(format!("    announces {}", announced_properties(announced)));
        }
        if let better @ Value::Object(_) = &port["better"] {
            lines.push(format!("    passive for {}", value_text(&better["port"])));
        }
        if let Some(error) = port["error"].as_str() {
            lines.push(format!("    {error}"));
        }
    }
    lines
}

/// Returns the clock properties that a PTP master announces, as one line.
fn announced_properties(announced: &Value) -> String {
    let is = |field: &str| announced[field] == true;
    let accuracy = match announced["accuracy_ns"].as_i64() {
        Some(ns) => format!("within {}", human_ns(ns.unsigned_abs())),
        None => "accuracy unknown".to_owned(),
    };
    let scale = match announced["utc_offset_s"].as_i64() {
        Some(seconds) if is("ptp_timescale") => format!("TAI (UTC + {seconds} s)"),
        _ => "ARB timescale".to_owned(),
    };
    let traceable = match (is("time_traceable"), is("frequency_traceable")) {
        (true, true) => "traceable",
        (true, false) => "time traceable",
        (false, true) => "frequency traceable",
        (false, false) => "not traceable",
    };
    let class = value_text(&announced["clock_class"]);
    let leap = value_text(&announced["leap"]);
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

fn absent_text() -> String {
    ABSENT.to_owned()
}

/// Returns a JSON value as text: a string without quotes, null as [`ABSENT`].
fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => absent_text(),
        other => other.to_string(),
    }
}

fn signed_time_text(ns: &Value) -> String {
    ns.as_i64().map_or_else(absent_text, signed_ns)
}

fn time_text(ns: &Value) -> String {
    ns.as_i64().map_or_else(absent_text, |ns| human_ns(ns.unsigned_abs()))
}

fn mean_time_text(ns: &Value) -> String {
    ns.as_f64().map_or_else(absent_text, mean_ns)
}

fn count_text(value: &Value) -> String {
    value.as_u64().map_or_else(absent_text, full_count)
}

fn ppb_text(value: &Value) -> String {
    value.as_f64().map_or_else(absent_text, |ppb| format!("{ppb:.3} ppb"))
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    pub(crate) fn status() -> Value {
        json!({
            "pid": 7, "uptime_s": 3_661.4, "synchronised": true, "page_expired": false,
            "stratum": 1, "page_age_ns": 50_000_000, "root_dispersion_ns": 1_500,
            "root_delay_ns": 0, "clock": { "steps": 1 },
            "sources": [
                { "name": "gnss", "state": "selected", "offset_ns": 250, "uncertainty_ns": 1_400,
                  "age_ms": 900 },
                { "name": "system clock with a long name", "state": "falseticker",
                  "offset_ns": -40_000_000, "uncertainty_ns": 16_000_000, "age_ms": 0 },
                { "name": "phc", "state": "unusable", "reason": "/dev/ptp0: it is no PTP clock" },
            ],
            "calibration": {
                "name": "/dev/ttyS0", "state": "locked", "offset_ns": 250,
                "uncertainty_ns": 31.5, "frequency_ppb": 19_998.125, "noise_ns": 101.5,
                "allan": [{ "tau_s": 1, "deviation_ppb": 141.0 }], "controls_clock": true,
                "steps": 1, "pulses": { "accepted": 3_600, "off_grid": 2 },
                "sentences": { "accepted": 3_601, "no_checksum": 1 },
                "rejected_sentence": "no checksum: $GPGSV,1", "log_failures": 0, "real_time": true,
            },
            "ptp": {
                "clock_identity": "02005e.fffe.100001", "profile": "default", "domain": 0,
                "ports": [{ "port": 1, "interface": "eth0", "transport": "udp4",
                            "state": "passive", "better": { "port": "02005e.fffe.100002-1" },
                            "grants": 2, "hardware_timestamps": 0, "kernel_timestamps": 1_234 }],
            },
        })
    }

    #[test]
    fn text_matches_the_expected_file() {
        let text = clock_text(&status(), usize::MAX);
        assert_eq!(text, include_str!("text.txt").trim_end(), "\n{text}");
    }

    #[test]
    fn announcement_of_a_master_is_shown() {
        let announcement = |announced: Value| announced_properties(&announced);
        let tai = json!({ "clock_class": 6, "accuracy_ns": 100, "ptp_timescale": true,
                          "utc_offset_s": 37, "time_traceable": true,
                          "frequency_traceable": true, "leap": "leap61" });
        let expected = "class 6, within 100 ns, TAI (UTC + 37 s), traceable, leap61";
        assert_eq!(announcement(tai), expected);
        let own = json!({ "clock_class": 248, "ptp_timescale": false, "leap": "none" });
        let expected = "class 248, accuracy unknown, ARB timescale, not traceable";
        assert_eq!(announcement(own), expected);
    }

    #[test]
    fn leap_second_list_is_shown() {
        let status = json!({ "tai_minus_utc_s": 37, "pending_leap": "insert 2028-12-31" });
        let text = server_lines(&status).join("\n");
        assert!(text.contains("37 s") && text.contains("(list): insert 2028-12-31"), "{text}");
    }

    #[test]
    fn a_narrow_terminal_keeps_every_figure() {
        let text = clock_text(&status(), 60);
        assert!(text.contains("  gnss, selected\n") && text.contains(" 900 ms"), "{text}");
        let tables = text.lines().filter(|line| line.ends_with(" ms") || line.ends_with("age"));
        assert!(tables.clone().count() >= 3, "{text}");
        assert!(tables.into_iter().all(|line| line.chars().count() <= 60), "{text}");
    }

    #[test]
    fn problems_are_shown() {
        let mut status = status();
        status["synchronised"] = false.into();
        status["sources"] = json!([]);
        status["calibration"]["state"] = "holdover".into();
        status["calibration"]["control_ended"] = "another program steers the clock".into();
        status["calibration"]["reason"] = "no pulse for 12 s".into();
        let text = clock_text(&status, 80);
        for expected in [
            ": not synchronised",
            "sources: none; the system clock is served unchecked",
            "holdover, no pulses",
            "no longer steered: another program",
            "no pulse for 12 s",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        status["page_expired"] = true.into();
        assert!(clock_text(&status, 80).contains("not answering: clock page expired"));
    }
}
