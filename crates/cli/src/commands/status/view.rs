//! Layout of `horolog status --live`: state of the server and its time sources, and tables of
//! replies and of requests that were not answered, with rates and totals. Pure.

use std::collections::BTreeMap;

use horolog_report::units::human_rate;
use horolog_server::{ServerStatus, SocketEngineCounts, StoredClientCounts, XdpCounts};
use horolog_source::SourceStatus;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

/// Width of a rate and a total after a name, in columns.
const VALUES_WIDTH: usize = 26;
/// Separator of two tables side by side.
const GAP: &str = "   ";
/// Smallest width of the column of names.
const NAME_WIDTH_MIN: usize = 8;

/// Two consecutive statuses of a server, from which values and rates are read.
struct ConsecutiveStatuses<'a> {
    before: &'a ServerStatus,
    now: &'a ServerStatus,
}

impl<'a> ConsecutiveStatuses<'a> {
    /// Returns a row of a count with its rate between the two statuses, per second; 0 if the count
    /// fell because the server was restarted.
    fn row(&self, name: &str, before: u64, now: u64) -> [String; 3] {
        let elapsed_s = self.now.uptime_s - self.before.uptime_s;
        let increase = now.saturating_sub(before) as f64;
        let rate = if elapsed_s > 0.0 { increase / elapsed_s } else { 0.0 };
        [name.to_owned(), human_rate(rate), now.to_string()]
    }

    fn socket_row(&self, name: &str, count_of: fn(&SocketEngineCounts) -> u64) -> [String; 3] {
        self.row(name, count_of(&self.before.counters), count_of(&self.now.counters))
    }

    /// Returns a row of a count of XDP; `None` without XDP.
    fn xdp_row(&self, name: &str, count_of: fn(&XdpCounts) -> u64) -> Option<[String; 3]> {
        let now = count_of(self.now.xdp_counters.as_ref()?);
        Some(self.row(name, self.before.xdp_counters.as_ref().map_or(0, count_of), now))
    }

    /// Returns a row for each named count, in the order of the names.
    fn named_rows<I: Iterator<Item = (&'static str, u64)>>(
        &self,
        prefix: &str,
        counts_of: impl Fn(&'a ServerStatus) -> I,
    ) -> Vec<[String; 3]> {
        let [before, now] = [self.before, self.now]
            .map(|status| counts_of(status).collect::<BTreeMap<&'static str, u64>>());
        let row = |(name, count)| {
            let count_before = before.get(name).copied().unwrap_or(0);
            self.row(&format!("{prefix}{name}"), count_before, count)
        };
        now.into_iter().map(row).collect()
    }
}

/// Lays out the status `now` with rates since `before`, for a terminal of this number of columns.
/// The tables are side by side if all names fit.
pub(super) fn lay_out(
    columns: usize,
    before: &ServerStatus,
    now: &ServerStatus,
) -> Vec<Line<'static>> {
    let statuses = ConsecutiveStatuses { before, now };
    let (replies, unanswered) = (reply_rows(&statuses), unanswered_rows(&statuses));
    let names = replies.iter().chain(&unanswered).map(|[name, ..]| name.chars().count());
    let longest = names.max().unwrap_or(0).max(NAME_WIDTH_MIN);
    let mut lines = header_lines(now);
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

fn header_lines(status: &ServerStatus) -> Vec<Line<'static>> {
    let listen: Vec<_> = status.listen.iter().map(ToString::to_string).collect();
    let (pid, engine, uptime) = (status.pid, &status.engine, status.uptime_s);
    let state = match (status.page_expired, status.synchronised) {
        (true, _) => "NOT ANSWERING: clock page expired".to_owned(),
        (_, false) => "NOT SYNCHRONISED".to_owned(),
        _ => format!("synchronised, stratum {}", status.stratum),
    };
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut lines = vec![
        Line::styled(
            format!("horolog {pid}  {engine}  up {uptime:.0} s  {}", listen.join(" ")),
            bold,
        ),
        Line::from(format!(
            "clock: {state}; error bound {:.3} ms + {:.3} ms; page {:.0} ms old; {} steps",
            milliseconds(status.root_dispersion_ns),
            milliseconds(status.root_delay_ns) / 2.0,
            milliseconds(status.page_age_ns),
            status.clock.steps,
        )),
    ];
    lines.extend(status.sources.iter().map(source_line));
    if let Some(error) = &status.reload.last_reload_error {
        lines.push(Line::styled(format!("last reload refused: {error}"), bold));
    }
    lines
}

fn milliseconds(ns: i64) -> f64 {
    ns as f64 / 1e6
}

/// Returns the line on a time source: its state in source selection, and its offset with
/// uncertainty, or the reason for which it is not used.
fn source_line(source: &SourceStatus) -> Line<'static> {
    let SourceStatus { name, state, .. } = source;
    if let Some(reason) = &source.reason {
        return Line::from(format!("source {name}: {state}, {reason}"));
    }
    let offset = milliseconds(source.offset_ns.unwrap_or(0));
    let uncertainty = milliseconds(source.uncertainty_ns.unwrap_or(0));
    Line::from(format!("source {name}: {state}, {offset:+.3} ms ± {uncertainty:.3} ms"))
}

fn reply_rows(statuses: &ConsecutiveStatuses<'_>) -> Vec<[String; 3]> {
    let ConsecutiveStatuses { before, now } = statuses;
    let mut rows = vec![statuses.socket_row("sockets", |counts| counts.answered)];
    for (index, worker) in now.workers.iter().enumerate() {
        let core = worker.core.map_or_else(String::new, |core| core.to_string());
        let listen = worker.listen.map_or_else(|| "AF_XDP".to_owned(), |listen| listen.to_string());
        let answered_before = before.workers.get(index).map_or(0, |worker| worker.answered);
        let name = format!("  core {core}, {listen}");
        rows.push(statuses.row(&name, answered_before, worker.answered));
    }
    rows.extend(statuses.xdp_row("XDP, IPv4", |counts| counts.answered_ipv4));
    rows.extend(statuses.xdp_row("XDP, IPv6", |counts| counts.answered_ipv6));
    rows.extend([
        statuses.socket_row("interleaved, sockets", |counts| counts.interleaved),
        statuses.socket_row("symmetric, sockets", |counts| counts.symmetric),
        statuses.socket_row("mac, sockets", |counts| counts.mac),
        statuses.socket_row("nts, sockets", |counts| counts.nts),
    ]);
    rows.extend(statuses.xdp_row("interleaved, XDP", |counts| counts.answered_interleaved));
    rows.extend(statuses.xdp_row("symmetric, XDP", |counts| counts.answered_symmetric));
    let by_core =
        |status: &'_ ServerStatus| status.xdp_answered_by_core.clone().unwrap_or_default();
    let answered_before = by_core(before);
    for (core, answered) in by_core(now).into_iter().enumerate() {
        let answered_before = answered_before.get(core).copied().unwrap_or(0);
        rows.push(statuses.row(&format!("  core {core}"), answered_before, answered));
    }
    rows.extend(statuses.named_rows("clients, ", |status| {
        status.clients.iter().flat_map(StoredClientCounts::by_name)
    }));
    rows
}

fn unanswered_rows(statuses: &ConsecutiveStatuses<'_>) -> Vec<[String; 3]> {
    let mut rows = vec![
        statuses.socket_row("dropped", |counts| counts.dropped),
        statuses.socket_row("refused", |counts| counts.refused),
        statuses.socket_row("expired", |counts| counts.expired),
        statuses.socket_row("receive_errors", |counts| counts.receive_errors),
    ];
    rows.extend(statuses.named_rows("ignored: ", |status| status.counters.ignored.by_name()));
    rows.extend(statuses.named_rows("XDP dropped: ", |status| {
        status.xdp_counters.iter().flat_map(|counts| counts.dropped.by_name())
    }));
    rows.extend(statuses.named_rows("XDP kiss: ", |status| {
        status.xdp_counters.iter().flat_map(|counts| counts.kisses.by_name())
    }));
    rows.extend(statuses.named_rows("XDP passed: ", |status| {
        status.xdp_counters.iter().flat_map(|counts| counts.passed.by_name())
    }));
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
    use super::*;
    use crate::commands::status::sample_status;

    fn status(uptime_s: f64, answered: u64) -> ServerStatus {
        let mut status = ServerStatus { uptime_s, ..sample_status() };
        (status.counters.answered, status.workers[0].answered) = (answered, answered);
        status
    }

    fn drawn(before: &ServerStatus, now: &ServerStatus) -> String {
        drawn_at(110, before, now)
    }

    fn drawn_at(columns: usize, before: &ServerStatus, now: &ServerStatus) -> String {
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
        assert!(screen.contains("synchronised, stratum 1; error bound 0.002 ms + 0.000 ms"));
        assert!(screen.contains("source gnss: selected, +0.000 ms ± 0.001 ms"), "{screen}");
        assert!(screen.contains("source phc: unusable, /dev/ptp0: it is no PTP clock"));
        assert!(line(&screen, "core 1, 192.0.2.1").contains("3000"));
        assert!(line(&screen, "core , AF_XDP").contains(" 10"), "{screen}");
        assert!(line(&screen, "ignored: denied").contains(" 3"));
        assert!(line(&screen, "XDP passed: length").contains(" 6"));
        assert!(line(&screen, "  core 1 ").contains(" 70"));
        assert!(line(&screen, "clients, limited_by_xdp").contains(" 13"));
    }

    #[test]
    fn a_server_that_was_restarted_has_no_negative_rate() {
        let screen = drawn(&status(100.0, 5_000), &status(1.0, 10));
        assert!(!line(&screen, "sockets").contains('-'), "{screen}");
    }

    #[test]
    fn problems_are_shown() {
        let mut now = ServerStatus { synchronised: false, ..status(1.0, 0) };
        let screen = drawn(&now, &now);
        assert!(screen.contains("NOT SYNCHRONISED"), "{screen}");
        assert!(screen.contains("last reload refused: no key"), "{screen}");
        now.page_expired = true;
        assert!(drawn(&now, &now).contains("NOT ANSWERING"));
    }

    #[test]
    fn a_narrow_terminal_has_the_tables_one_below_the_other_and_whole_names() {
        let now = ServerStatus { listen: Vec::new(), sources: Vec::new(), ..status(1.0, 7) };
        let wide = drawn_at(160, &now, &now);
        assert!(line(&wide, "rate").contains("not answered"), "{wide}");
        let narrow = drawn_at(45, &now, &now);
        assert!(!line(&narrow, "replies").contains("not answered"), "{narrow}");
        let name = narrow.lines().position(|line| line == "ignored: mode_broadcast").unwrap();
        assert!(narrow.lines().nth(name + 1).unwrap().ends_with(" 0"), "{narrow}");
        assert!(narrow.lines().skip(3).all(|line| line.chars().count() <= 45), "{narrow}");
    }

    #[test]
    fn any_size_can_be_drawn() {
        let full = status(1.0, 1);
        for columns in [0, 1, 20, 80, 300] {
            drawn_at(columns, &full, &full);
        }
    }
}
