//! Layout of `horolog status --live`: state of the server and its time sources, and tables of
//! replies and of requests that were not answered, with rates and totals. Pure.

use horolog_report::units::human_rate;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use serde_json::Value;

/// Width of a rate and a total after a name, in columns.
const VALUES_WIDTH: usize = 26;
/// Separator of two tables side by side.
const GAP: &str = "   ";
/// Smallest width of the column of names.
const NAME_WIDTH_MIN: usize = 8;

/// Two consecutive statuses of a server, as JSON, from which values and rates are read.
struct StatusPair<'a> {
    before: &'a Value,
    now: &'a Value,
    elapsed_s: f64,
}

impl<'a> StatusPair<'a> {
    fn new(before: &'a Value, now: &'a Value) -> Self {
        let uptime = |status: &Value| status["uptime_s"].as_f64().unwrap_or(0.0);
        Self { before, now, elapsed_s: uptime(now) - uptime(before) }
    }

    fn number(&self, pointer: &str) -> f64 {
        self.now.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0)
    }

    /// Returns the rate of a counter between the two statuses, per second; 0 if the counter fell
    /// because the server was restarted.
    fn rate(&self, pointer: &str) -> f64 {
        let before = self.before.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0);
        let increase = self.number(pointer) - before;
        if self.elapsed_s > 0.0 && increase > 0.0 { increase / self.elapsed_s } else { 0.0 }
    }

    fn row(&self, name: &str, pointer: &str) -> [String; 3] {
        let per_second = human_rate(self.rate(pointer));
        [name.to_owned(), per_second, format!("{:.0}", self.number(pointer))]
    }

    /// Returns the keys of the JSON object at a pointer (RFC 6901) in the later status.
    fn keys(&self, pointer: &str) -> Vec<String> {
        let object = self.now.pointer(pointer).and_then(Value::as_object);
        object.map(|object| object.keys().cloned().collect()).unwrap_or_default()
    }

    fn length(&self, pointer: &str) -> usize {
        self.now.pointer(pointer).and_then(Value::as_array).map_or(0, Vec::len)
    }

    fn text(&self, pointer: &str) -> String {
        match self.now.pointer(pointer) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) | None => String::new(),
            Some(other) => other.to_string(),
        }
    }
}

/// Lays out the status `now` with rates since `before`, for a terminal of this number of columns.
/// The tables are side by side if all names fit.
pub(super) fn lay_out(columns: usize, before: &Value, now: &Value) -> Vec<Line<'static>> {
    let statuses = StatusPair::new(before, now);
    let (replies, unanswered) = (reply_rows(&statuses), unanswered_rows(&statuses));
    let names = replies.iter().chain(&unanswered).map(|[name, ..]| name.chars().count());
    let longest = names.max().unwrap_or(0).max(NAME_WIDTH_MIN);
    let mut lines = header_lines(&statuses);
    lines.push(Line::default());
    let half_width = columns.saturating_sub(GAP.len()) / 2;
    if half_width >= longest + VALUES_WIDTH {
        let width = half_width - VALUES_WIDTH;
        let left = table_lines("replies", &replies, width);
        let right = table_lines("not answered", &unanswered, width);
        lines.extend(side_by_side(left, right, half_width));
    } else {
        let width = columns.saturating_sub(VALUES_WIDTH).clamp(NAME_WIDTH_MIN, longest);
        lines.extend(table_lines("replies", &replies, width));
        lines.push(Line::default());
        lines.extend(table_lines("not answered", &unanswered, width));
    }
    lines
}

fn side_by_side(
    left: Vec<Line<'static>>,
    right: Vec<Line<'static>>,
    width: usize,
) -> impl Iterator<Item = Line<'static>> {
    let count = left.len().max(right.len());
    let (mut left, mut right) = (left.into_iter(), right.into_iter());
    (0..count).map(move |_| {
        let mut line = left.next().unwrap_or_else(|| Line::from(" ".repeat(width)));
        line.push_span(Span::raw(GAP));
        line.spans.extend(right.next().unwrap_or_default().spans);
        line
    })
}

fn header_lines(statuses: &StatusPair<'_>) -> Vec<Line<'static>> {
    let listen = statuses.now["listen"].as_array().cloned().unwrap_or_default();
    let listen: Vec<&str> = listen.iter().filter_map(Value::as_str).collect();
    let (pid, engine) = (statuses.text("/pid"), statuses.text("/engine"));
    let uptime = statuses.number("/uptime_s");
    let state =
        match (statuses.now["page_expired"].as_bool(), statuses.now["synchronised"].as_bool()) {
            (Some(true), _) => "NOT ANSWERING: clock page expired".to_owned(),
            (_, Some(false)) => "NOT SYNCHRONISED".to_owned(),
            _ => format!("synchronised, stratum {}", statuses.text("/stratum")),
        };
    let milliseconds = |pointer| statuses.number(pointer) / 1e6;
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut lines = vec![
        Line::styled(
            format!("horolog {pid}  {engine}  up {uptime:.0} s  {}", listen.join(" ")),
            bold,
        ),
        Line::from(format!(
            "clock: {state}; error bound {:.3} ms + {:.3} ms; page {:.0} ms old; {} steps",
            milliseconds("/root_dispersion_ns"),
            milliseconds("/root_delay_ns") / 2.0,
            milliseconds("/page_age_ns"),
            statuses.text("/clock/steps"),
        )),
    ];
    for index in 0..statuses.length("/sources") {
        lines.push(source_line(statuses, index));
    }
    let error = statuses.text("/reload/last_reload_error");
    if !error.is_empty() {
        lines.push(Line::styled(format!("last reload refused: {error}"), bold));
    }
    lines
}

/// Returns the line on a time source: its state in source selection, and its offset with
/// uncertainty, or the reason for which it is not used.
fn source_line(statuses: &StatusPair<'_>, index: usize) -> Line<'static> {
    let text = |field: &str| statuses.text(&format!("/sources/{index}/{field}"));
    let ms = |field: &str| statuses.number(&format!("/sources/{index}/{field}")) / 1e6;
    let (name, state, reason) = (text("name"), text("state"), text("reason"));
    if !reason.is_empty() {
        return Line::from(format!("source {name}: {state}, {reason}"));
    }
    let (offset, uncertainty) = (ms("offset_ns"), ms("uncertainty_ns"));
    Line::from(format!("source {name}: {state}, {offset:+.3} ms ± {uncertainty:.3} ms"))
}

fn reply_rows(statuses: &StatusPair<'_>) -> Vec<[String; 3]> {
    let mut rows = vec![statuses.row("sockets", "/counters/answered")];
    for index in 0..statuses.length("/workers") {
        let worker = format!("/workers/{index}");
        let core = statuses.text(&format!("{worker}/core"));
        let listen = statuses.text(&format!("{worker}/listen"));
        let listen = if listen.is_empty() { "AF_XDP".to_owned() } else { listen };
        let name = format!("  core {core}, {listen}");
        rows.push(statuses.row(&name, &format!("{worker}/answered")));
    }
    if statuses.now.get("xdp_counters").is_some() {
        rows.push(statuses.row("XDP, IPv4", "/xdp_counters/answered_ipv4"));
        rows.push(statuses.row("XDP, IPv6", "/xdp_counters/answered_ipv6"));
    }
    for kind in ["interleaved", "symmetric", "mac", "nts"] {
        rows.push(statuses.row(&format!("{kind}, sockets"), &format!("/counters/{kind}")));
    }
    if statuses.now.get("xdp_counters").is_some() {
        rows.push(statuses.row("interleaved, XDP", "/xdp_counters/answered_interleaved"));
        rows.push(statuses.row("symmetric, XDP", "/xdp_counters/answered_symmetric"));
    }
    for core in 0..statuses.length("/xdp_answered_by_core") {
        rows.push(
            statuses.row(&format!("  core {core}"), &format!("/xdp_answered_by_core/{core}")),
        );
    }
    for key in statuses.keys("/clients") {
        rows.push(statuses.row(&format!("clients, {key}"), &format!("/clients/{key}")));
    }
    rows
}

fn unanswered_rows(statuses: &StatusPair<'_>) -> Vec<[String; 3]> {
    let mut rows: Vec<_> = ["dropped", "refused", "expired", "receive_errors"]
        .iter()
        .map(|name| statuses.row(name, &format!("/counters/{name}")))
        .collect();
    for reason in statuses.keys("/counters/ignored") {
        let pointer = format!("/counters/ignored/{reason}");
        rows.push(statuses.row(&format!("ignored: {reason}"), &pointer));
    }
    for (title, field) in [("dropped", "dropped"), ("kiss", "kisses")] {
        for reason in statuses.keys(&format!("/xdp_counters/{field}")) {
            let pointer = format!("/xdp_counters/{field}/{reason}");
            rows.push(statuses.row(&format!("XDP {title}: {reason}"), &pointer));
        }
    }
    for reason in statuses.keys("/xdp_counters/passed") {
        let pointer = format!("/xdp_counters/passed/{reason}");
        rows.push(statuses.row(&format!("XDP passed: {reason}"), &pointer));
    }
    rows
}

/// Returns the lines of a table with a header; a name longer than `name_width` is on its own line.
fn table_lines(title: &str, rows: &[[String; 3]], name_width: usize) -> Vec<Line<'static>> {
    let text =
        |name: &str, rate: &str, count: &str| format!("{name:<name_width$} {rate:>10} {count:>14}");
    let reversed = Style::new().add_modifier(Modifier::REVERSED);
    let mut lines = vec![Line::from(Span::styled(text(title, "rate", "total"), reversed))];
    for [name, rate, count] in rows {
        if name.chars().count() > name_width {
            lines.push(Line::from(name.clone()));
            lines.push(Line::from(text("", rate, count)));
        } else {
            lines.push(Line::from(text(name, rate, count)));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(uptime_s: f64, answered: u64) -> Value {
        json!({
            "pid": 7, "uptime_s": uptime_s, "listen": ["192.0.2.1:123"], "engine": "xdp",
            "synchronised": true, "page_expired": false, "stratum": 2, "page_age_ns": 50_000_000,
            "root_dispersion_ns": 1_500_000, "root_delay_ns": 1_000_000, "clock": { "steps": 0 },
            "reload": {},
            "counters": {
                "answered": answered, "dropped": 4, "refused": 0, "expired": 0,
                "receive_errors": 0, "ignored": { "mode": 3 },
            },
            "workers": [{ "listen": "192.0.2.1:123", "core": 1, "answered": answered }],
            "xdp_counters": { "answered_ipv4": 10, "answered_ipv6": 0, "passed": { "length": 6 } },
            "xdp_answered_by_core": [4, 6],
        })
    }

    fn drawn(before: &Value, now: &Value) -> String {
        drawn_at(110, before, now)
    }

    fn drawn_at(columns: usize, before: &Value, now: &Value) -> String {
        let lines = lay_out(columns, before, now);
        lines.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    fn line<'a>(screen: &'a str, with: &str) -> &'a str {
        screen
            .lines()
            .find(|line| line.contains(with))
            .unwrap_or_else(|| panic!("{with}: {screen}"))
    }

    #[test]
    fn rates_are_of_the_time_between_two_answers() {
        let screen = drawn(&status(10.0, 1_000), &status(12.0, 3_000));
        let sockets = line(&screen, "sockets");
        assert!(sockets.contains(&human_rate(1_000.0)) && sockets.contains("3000"), "{sockets}");
        assert!(screen.contains("synchronised, stratum 2; error bound 1.500 ms + 0.500 ms"));
        assert!(line(&screen, "core 1, 192.0.2.1").contains("3000"));
        assert!(line(&screen, "ignored: mode").contains(" 3"));
        assert!(line(&screen, "XDP passed: length").contains(" 6"));
        assert!(line(&screen, "  core 1 ").contains(" 6"));
    }

    #[test]
    fn a_server_that_was_restarted_has_no_negative_rate() {
        let screen = drawn(&status(100.0, 5_000), &status(1.0, 10));
        assert!(!line(&screen, "sockets").contains('-'), "{screen}");
    }

    #[test]
    fn problems_are_shown() {
        let mut now = status(1.0, 0);
        now["synchronised"] = false.into();
        assert!(drawn(&now, &now).contains("NOT SYNCHRONISED"));
        now["page_expired"] = true.into();
        assert!(drawn(&now, &now).contains("NOT ANSWERING"));
        now["reload"]["last_reload_error"] = "no such key".into();
        assert!(drawn(&now, &now).contains("last reload refused: no such key"));
    }

    #[test]
    fn a_narrow_terminal_has_the_tables_one_below_the_other_and_whole_names() {
        let mut now = status(1.0, 7);
        now["counters"]["ignored"] = json!({ "a_reason_with_a_long_name": 3 });
        let wide = drawn_at(160, &now, &now);
        assert!(line(&wide, "rate").contains("not answered"), "{wide}");
        let narrow = drawn_at(60, &now, &now);
        assert!(!line(&narrow, "replies").contains("not answered"), "{narrow}");
        assert!(line(&narrow, "ignored: a_reason_with_a_long_name").ends_with(" 3"), "{narrow}");
        assert!(narrow.lines().skip(3).all(|line| line.chars().count() <= 60), "{narrow}");
    }

    #[test]
    fn any_size_and_any_answer_can_be_drawn() {
        let full = status(1.0, 1);
        for columns in [0, 1, 20, 80, 300] {
            drawn_at(columns, &full, &full);
            drawn_at(columns, &json!({}), &json!(null));
        }
    }
}
