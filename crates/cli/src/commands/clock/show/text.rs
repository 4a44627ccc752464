//! Clock part of a server's status, in words and right-aligned numbers. Pure.

use horolog_report::units::{ABSENT, full_count, human_ns, mean_ns, signed_ns};
use serde_json::Value;

const NAME_WIDTH: usize = 30;
const FIGURE_WIDTH: usize = 14;
/// Three numbers and the blanks before them.
const FIGURES_WIDTH: usize = 3 * (FIGURE_WIDTH + 1);
/// The width of names on a narrow terminal.
const NAME_WIDTH_MIN: usize = 15;

/// The lines, without a newline at the end, with tables of at most this number of columns.
pub(super) fn clock(status: &Value, columns: usize) -> String {
    let name_width = columns.saturating_sub(FIGURES_WIDTH).clamp(NAME_WIDTH_MIN, NAME_WIDTH);
    let mut lines = served(status);
    lines.extend(sources(&status["sources"], name_width));
    if let calibration @ Value::Object(_) = &status["calibration"] {
        lines.extend(calibrated(calibration));
    }
    if let ptp @ Value::Object(_) = &status["ptp"] {
        lines.extend(ports(ptp, name_width));
    }
    lines.join("\n")
}

fn served(status: &Value) -> Vec<String> {
    let state = match (status["page_expired"].as_bool(), status["synchronised"].as_bool()) {
        (Some(true), _) => "not answering: clock page expired".to_owned(),
        (_, Some(true)) => format!("synchronised, stratum {}", word(&status["stratum"])),
        _ => "not synchronised".to_owned(),
    };
    let uptime = status["uptime_s"].as_f64().unwrap_or(0.0);
    let mut lines = vec![
        format!("server {}, up {uptime:.0} s: {state}", word(&status["pid"])),
        figure("root dispersion", &time(&status["root_dispersion_ns"])),
        figure("root delay", &time(&status["root_delay_ns"])),
        figure("clock page age", &time(&status["page_age_ns"])),
        figure("system clock steps", &count(&status["clock"]["steps"])),
    ];
    if let Some(seconds) = status["tai_minus_utc_s"].as_i64() {
        lines.push(figure("TAI minus UTC", &format!("{seconds} s")));
    }
    if let Some(leap) = status["pending_leap"].as_str() {
        lines.push(format!("  next leap second (list): {leap}"));
    }
    lines
}

/// Each source with the offset of the system clock from it, and the number of sources that agree.
fn sources(sources: &Value, name_width: usize) -> Vec<String> {
    let all = sources.as_array().map_or(&[][..], Vec::as_slice);
    if all.is_empty() {
        let served = "sources: none; the system clock is served unchecked";
        return vec![String::new(), served.to_owned()];
    }
    let state = |source: &Value| source["state"].as_str().unwrap_or_default().to_owned();
    let agree = all.iter().filter(|one| ["selected", "truechimer"].contains(&&*state(one)));
    let vote = match all.iter().find(|source| state(source) == "selected") {
        Some(selected) => format!("serving {}", word(&selected["name"])),
        None => "none selected".to_owned(),
    };
    let mut lines = vec![
        String::new(),
        format!("sources: {} of {} agree, {vote}", agree.count(), all.len()),
        row("  source, state", name_width, ["system ahead", "error bound", "age"]),
    ];
    for source in all {
        let name = format!("  {}, {}", word(&source["name"]), state(source));
        let age = source["age_ms"].as_i64().map(|ms| ms.saturating_mul(1_000_000));
        let figures = [
            signed(&source["offset_ns"]),
            time(&source["uncertainty_ns"]),
            age.map_or_else(absent, |ns| human_ns(ns.unsigned_abs())),
        ];
        lines.push(row(&name, name_width, figures.each_ref().map(String::as_str)));
        if let Some(reason) = source["reason"].as_str() {
            lines.push(format!("    {reason}"));
        }
    }
    lines
}

/// The meaning of a calibration state.
fn meaning(state: &str) -> &'static str {
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

fn calibrated(status: &Value) -> Vec<String> {
    let state = word(&status["state"]);
    let mut lines = vec![
        String::new(),
        format!("calibration by {}: {state}, {}", word(&status["name"]), meaning(&state)),
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
    lines.push(figure("system clock ahead of UTC", &signed(&status["offset_ns"])));
    lines.push(figure("uncertainty", &mean(&status["uncertainty_ns"])));
    lines.push(figure("frequency, uncorrected", &ppb(&status["frequency_ppb"])));
    lines.push(figure("pulse noise", &mean(&status["noise_ns"])));
    if let Some(held_s) = status["holdover_s"].as_f64() {
        let limit_s = status["holdover_limit_s"].as_f64().unwrap_or(0.0);
        lines.push(figure("in holdover", &format!("{held_s:.0} of {limit_s:.0} s")));
    }
    lines.push(figure("steps", &count(&status["steps"])));
    if let Some(leap) = status["pending_leap"].as_str() {
        lines.push(format!("  next leap second: {leap}"));
    }
    if let Some(seconds) = status["tai_minus_utc_s"].as_i64() {
        lines.push(figure("TAI minus UTC, received", &format!("{seconds} s")));
    }
    if let Some(rejection) = status["leap_rejection"].as_str() {
        lines.push(format!("    {rejection}"));
    }
    if let Some(failures) = status["log_failures"].as_u64() {
        lines.push(figure("log entries not written", &full_count(failures)));
    }
    for what in ["pulses", "sentences"] {
        for (verdict, number) in status[what].as_object().into_iter().flatten() {
            let name = format!("{what}: {}", verdict.replace('_', " "));
            lines.push(figure(&name, &count(number)));
        }
    }
    if let Some(rejected) = status["rejected_sentence"].as_str() {
        lines.push(format!("  last rejected sentence: {rejected}"));
    }
    for point in status["allan"].as_array().into_iter().flatten() {
        let name = format!("Allan deviation at {} s", word(&point["tau_s"]));
        lines.push(figure(&name, &ppb(&point["deviation_ppb"])));
    }
    lines
}

fn ports(ptp: &Value, name_width: usize) -> Vec<String> {
    let (identity, profile) = (word(&ptp["clock_identity"]), word(&ptp["profile"]));
    let mut lines = vec![
        String::new(),
        format!("PTP clock {identity}, profile {profile}, domain {}", word(&ptp["domain"])),
        row("  port, state", name_width, ["HW timestamps", "SW timestamps", "grants"]),
    ];
    for port in ptp["ports"].as_array().into_iter().flatten() {
        let [number, interface, transport, state] =
            ["port", "interface", "transport", "state"].map(|field| word(&port[field]));
        let figures = ["hardware_timestamps", "kernel_timestamps", "grants"];
        let figures = figures.map(|field| count(&port[field]));
        let name = format!("  {number} {interface} {transport}, {state}");
        lines.push(row(&name, name_width, figures.each_ref().map(String::as_str)));
        if let announced @ Value::Object(_) = &port["announces"] {
            lines.push(format!("    announces {}", announces(announced)));
        }
        if let better @ Value::Object(_) = &port["better"] {
            lines.push(format!("    passive for {}", word(&better["port"])));
        }
        if let Some(error) = port["error"].as_str() {
            lines.push(format!("    {error}"));
        }
    }
    lines
}

/// The clock properties that a PTP master announces.
fn announces(announced: &Value) -> String {
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
    let class = word(&announced["clock_class"]);
    let leap = word(&announced["leap"]);
    let leap = if leap == "none" { String::new() } else { format!(", {leap}") };
    format!("class {class}, {accuracy}, {scale}, {traceable}{leap}")
}

fn figure(name: &str, value: &str) -> String {
    row(&format!("  {name}"), NAME_WIDTH, [value, "", ""])
}

/// A name and numbers in columns; a name that is too long has a line of its own.
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

fn absent() -> String {
    ABSENT.to_owned()
}

/// A string as it is, a number in digits.
fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => absent(),
        other => other.to_string(),
    }
}

fn signed(ns: &Value) -> String {
    ns.as_i64().map_or_else(absent, signed_ns)
}

fn time(ns: &Value) -> String {
    ns.as_i64().map_or_else(absent, |ns| human_ns(ns.unsigned_abs()))
}

fn mean(ns: &Value) -> String {
    ns.as_f64().map_or_else(absent, mean_ns)
}

fn count(value: &Value) -> String {
    value.as_u64().map_or_else(absent, full_count)
}

fn ppb(value: &Value) -> String {
    value.as_f64().map_or_else(absent, |ppb| format!("{ppb:.3} ppb"))
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
        let text = clock(&status(), usize::MAX);
        assert_eq!(text, include_str!("text.txt").trim_end(), "\n{text}");
    }

    #[test]
    fn announcement_of_a_master_is_shown() {
        let announcement = |announced: Value| announces(&announced);
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
        let text = served(&status).join("\n");
        assert!(text.contains("37 s") && text.contains("(list): insert 2028-12-31"), "{text}");
    }

    #[test]
    fn a_narrow_terminal_keeps_every_figure() {
        let text = clock(&status(), 60);
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
        let text = clock(&status, 80);
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
        assert!(clock(&status, 80).contains("not answering: clock page expired"));
    }
}
