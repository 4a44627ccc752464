//! Live view of `horolog path stall --watch`: progress, connections ordered by their stalls, and a
//! sparkline of stalls over time.

use horolog_probe::path::stall::{StallWatchSnapshot, WatchedConnectionSnapshot};
use horolog_report::units::{ABSENT, full_count, human_ns};
use horolog_report::{stall_mechanism, stall_not_followed};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

use crate::failure::CommandFailure;
use crate::live::{SharedStateView, SparklineHistory, bar};

/// Maximum number of connections shown.
const SHOWN_MAX: usize = 200;
/// Width of the progress bar, in columns.
const BAR: usize = 30;
/// Minimum width of the column of an address with its port.
const ADDRESS_MIN: usize = 21;

/// Terminal view of the observed connections.
pub(super) struct StallLiveView(SharedStateView<StallViewState>);

impl StallLiveView {
    pub(super) fn start(port: u16) -> Result<Self, CommandFailure> {
        SharedStateView::start(StallViewState::new(port), StallViewState::layout).map(Self)
    }

    pub(super) fn update(&self, snapshot: StallWatchSnapshot) {
        self.0.update(|state| state.update(snapshot));
    }
}

struct StallViewState {
    port: u16,
    last: Option<StallWatchSnapshot>,
    stalls: u64,
    /// Number of new stalls at each update.
    new_stalls: SparklineHistory,
}

impl StallViewState {
    fn new(port: u16) -> Self {
        Self { port, last: None, stalls: 0, new_stalls: SparklineHistory::default() }
    }

    fn update(&mut self, mut snapshot: StallWatchSnapshot) {
        let stalls = snapshot.connections.iter().flat_map(|one| one.stalls);
        let stalls = stalls.fold(0, u64::saturating_add);
        self.new_stalls.push(Some(stalls.saturating_sub(self.stalls) as f64));
        self.stalls = stalls;
        snapshot.connections.truncate(SHOWN_MAX);
        self.last = Some(snapshot);
    }

    fn layout(&self, columns: usize) -> Vec<Line<'static>> {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let title = format!("path stall: watching port {}", self.port);
        let mut lines = vec![Line::styled(title, bold)];
        let Some(last) = &self.last else { return lines };
        let (done, total) = (last.elapsed.as_secs_f64(), last.total.as_secs_f64());
        let share = bar(done / total, BAR);
        lines.push(Line::from(format!("{done:.1} of {total:.1} s  {share:BAR$}|")));
        if last.untracked > 0 {
            lines.push(Line::from(stall_not_followed(last.untracked)));
        }
        lines.push(Line::default());
        if last.connections.is_empty() {
            lines.push(Line::from("no connections with data yet"));
            return lines;
        }
        let ends = last.connections.iter().flat_map(|one| [one.client, one.server]);
        let width = ends.map(|end| end.to_string().len()).fold(ADDRESS_MIN, usize::max);
        let head = format!(
            "{:width$} {:width$} {:>9} {:>7} {:>7} {:>8}  mechanism",
            "client", "server", "responses", "client", "server", "longest"
        );
        lines.push(Line::styled(head, Style::new().add_modifier(Modifier::REVERSED)));
        lines.extend(last.connections.iter().map(|one| Line::from(connection_row(one, width))));
        lines.push(Line::default());
        let title = format!("stalls over time, {} total", full_count(self.stalls));
        lines.push(Line::from(title));
        lines.push(Line::from(self.new_stalls.render(columns.max(1))));
        lines
    }
}

/// Returns the row of a connection. Stalls are counted at the end, client or server, that held the
/// data back.
fn connection_row(one: &WatchedConnectionSnapshot, width: usize) -> String {
    let absent = || ABSENT.to_owned();
    let answers = one.answers.map_or_else(absent, full_count);
    let longest = one.longest_ns.map_or_else(absent, human_ns);
    let [client, server] = one.stalls.map(full_count);
    let ends = [one.client.to_string(), one.server.to_string()];
    let [of_client, of_server] = &ends;
    let by = stall_mechanism(one.mechanism);
    format!(
        "{of_client:width$} {of_server:width$} {answers:>9} {client:>7} {server:>7} \
         {longest:>8}  {by}"
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use horolog_record::StallMechanism;

    use super::*;

    fn connection(stalls: [u64; 2]) -> WatchedConnectionSnapshot {
        let is_held = stalls != [0, 0];
        WatchedConnectionSnapshot {
            server: "192.0.2.1:443".parse().unwrap(),
            client: "192.0.2.2:40000".parse().unwrap(),
            answers: Some(1_234),
            stalls,
            longest_ns: is_held.then_some(41_200_000),
            mechanism: is_held.then_some(StallMechanism::NagleDelayedAck),
        }
    }

    fn snapshot(connections: Vec<WatchedConnectionSnapshot>) -> StallWatchSnapshot {
        let (elapsed, total) = (Duration::from_secs(15), Duration::from_mins(1));
        StallWatchSnapshot { elapsed, total, connections, untracked: 0 }
    }

    fn drawn(state: &StallViewState, columns: usize) -> String {
        state.layout(columns).iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn connections_are_drawn_with_stalls_over_time() {
        let mut state = StallViewState::new(443);
        assert_eq!(drawn(&state, 80), "path stall: watching port 443");
        state.update(snapshot(Vec::new()));
        assert!(drawn(&state, 80).contains("no connections"));
        for stalls in [[1, 0], [1, 2], [1, 2], [5, 2]] {
            state.update(snapshot(vec![connection(stalls)]));
        }
        let screen = drawn(&state, 100);
        for text in [
            "15.0 of 60.0 s  ███████▌ ",
            "192.0.2.2:40000       192.0.2.1:443             1,234       5       2  41.2 ms  \
             Nagle + delayed ACK",
            "stalls over time, 7 total",
        ] {
            assert!(screen.contains(text), "{text}: {screen}");
        }
        // None, 1, 2, none and 4 since the previous snapshot.
        let over_time = screen.lines().last().unwrap();
        let mut fresh = SparklineHistory::default();
        for count in [0.0, 1.0, 2.0, 0.0, 4.0] {
            fresh.push(Some(count));
        }
        assert_eq!(over_time.trim_end(), fresh.render(100).trim_end());
        state.update(StallWatchSnapshot { untracked: 3, ..snapshot(vec![connection([0, 0])]) });
        let screen = drawn(&state, 100);
        assert!(
            screen.contains("3 connections more not tracked") && screen.contains(" -  -"),
            "{screen}"
        );
    }

    #[test]
    fn memory_is_bounded_and_any_size_can_be_drawn() {
        let mut state = StallViewState::new(1);
        let many = snapshot(vec![connection([u64::MAX, 1]); SHOWN_MAX + 9]);
        (0..9).for_each(|_| state.update(many.clone()));
        assert_eq!(state.last.as_ref().unwrap().connections.len(), SHOWN_MAX);
        for columns in [0, 1, 10, 80, 500] {
            drawn(&state, columns);
        }
    }
}
