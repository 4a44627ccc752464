//! Live view of `horolog path stall --watch`: connections ordered by their stalls, and a sparkline
//! of stalls over time.

use horolog_probe::path::stall::{StallWatchValues, WatchedConnectionSnapshot};
use horolog_record::LiveRun;
use horolog_report::units::{ABSENT, full_count, human_ns};
use horolog_report::{stall_mechanism, stall_not_followed};

use crate::live::{LiveBlock, LiveViewValues, part_series};

/// Line shown without a connection.
pub(super) const NO_CONNECTIONS: &str = "no connections with data yet";
/// Minimum width of the column of an address with its port.
const ADDRESS_MIN: usize = 21;

impl LiveViewValues for StallWatchValues {
    fn blocks(&self, run: &LiveRun<Self>) -> Vec<LiveBlock> {
        let mut lines =
            Vec::from_iter((self.untracked > 0).then(|| stall_not_followed(self.untracked)));
        if self.connections.is_empty() {
            lines.push(NO_CONNECTIONS.to_owned());
            return vec![LiveBlock::Lines(lines)];
        }
        let ends = self.connections.iter().flat_map(|one| [one.client, one.server]);
        let width = ends.map(|end| end.to_string().len()).fold(ADDRESS_MIN, usize::max);
        let header = format!(
            "{:width$} {:width$} {:>9} {:>7} {:>7} {:>8}  mechanism",
            "client", "server", "responses", "client", "server", "longest"
        );
        let rows = self.connections.iter().map(|one| connection_row(one, width)).collect();
        let new_stalls = part_series(run, |before, now: &Self| {
            Some(now.stalls.saturating_sub(before.map_or(0, |before| before.stalls)) as f64)
        });
        let title = format!("stalls over time, {} total", full_count(self.stalls));
        vec![
            LiveBlock::Lines(lines),
            LiveBlock::Table { header, rows },
            LiveBlock::Series { title, lines: vec![(String::new(), new_stalls)] },
        ]
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
    use horolog_record::{PartPlan, Snapshot, StallMechanism};

    use super::*;
    use crate::live::drawn;

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

    fn run() -> LiveRun<StallWatchValues> {
        LiveRun::new("path stall", "watching port 443".to_owned(), "")
    }

    fn push(
        run: &mut LiveRun<StallWatchValues>,
        connections: Vec<WatchedConnectionSnapshot>,
        untracked: u64,
    ) {
        let plan = PartPlan { duration_s: Some(60.0), ..PartPlan::default() };
        let values = StallWatchValues::new(connections, untracked);
        run.snapshots.push(Snapshot { at_s: 15.0, part: plan.progress(15.0), values });
    }

    #[test]
    fn connections_are_drawn_with_stalls_over_time() {
        let mut run = run();
        assert!(drawn(&run, 80).starts_with("path stall  watching port 443\n"));
        push(&mut run, Vec::new(), 0);
        assert!(drawn(&run, 80).contains("no connections"));
        for stalls in [[1, 0], [1, 2], [1, 2], [5, 2]] {
            push(&mut run, vec![connection(stalls)], 0);
        }
        let screen = drawn(&run, 100);
        for text in [
            "\n15.0 of 60.0 s  ███████▌ ",
            "192.0.2.2:40000       192.0.2.1:443             1,234       5       2  41.2 ms  \
             Nagle + delayed ACK",
            "stalls over time, 7 total",
        ] {
            assert!(screen.contains(text), "{text}: {screen}");
        }
        // None, 1, 2, none and 4 since the previous snapshot.
        assert_eq!(screen.lines().last().unwrap(), "▁▂▄▁█");
        push(&mut run, vec![connection([0, 0])], 3);
        let screen = drawn(&run, 100);
        assert!(
            screen.contains("3 connections more not tracked") && screen.contains(" -  -"),
            "{screen}"
        );
    }

    #[test]
    fn any_size_can_be_drawn() {
        let mut run = run();
        (0..9).for_each(|_| push(&mut run, vec![connection([u64::MAX, 1]); 300], 0));
        for columns in [0, 1, 10, 80, 500] {
            drawn(&run, columns);
        }
    }
}
