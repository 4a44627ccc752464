//! Log of periods, supersteps and events, as CSV (RFC 4180).

use std::fmt::{self, Display, Formatter};

use crate::entry::{PeriodEntry, PeriodEntryKind, PeriodOutcome};
use crate::task::{Task, TaskWork};

/// Header line of the CSV file.
pub const LOG_HEADER: &str = "node,task,part,cycle,release_ns,released_ns,lateness_ns,execution_ns,\
                              response_ns,deadline_ns,computation_ns,communication_ns,idle_ns,\
                              barrier_ns,missed,overrun,failed,messages_missing,barrier_broken,\
                              awaited,left,state";

/// CSV line of a period, superstep or event of a task.
#[derive(Clone, Copy, Debug)]
pub struct PeriodLogLine<'a> {
    /// Name of the node.
    pub node: &'a str,
    /// Names of all nodes, by index.
    pub names: &'a [String],
    /// Task of the entry.
    pub task: &'a Task,
    pub(crate) entry: &'a PeriodEntry,
}

impl PeriodLogLine<'_> {
    fn states(&self) -> &[String] {
        match &self.task.work {
            TaskWork::Program(program) => &program.states,
            _ => &[],
        }
    }
}

impl Display for PeriodLogLine<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { node, names, task, entry } = self;
        write!(f, "{node},{},", task.name)?;
        match entry.kind {
            PeriodEntryKind::Period => f.write_str("period")?,
            PeriodEntryKind::Step(step) => write!(f, "step{}", u16::from(step) + 1)?,
            PeriodEntryKind::Event => f.write_str("event")?,
            PeriodEntryKind::NotReleased => f.write_str("unreleased")?,
        }
        let release_ns =
            u128::from(task.offset_ns) + u128::from(entry.period) * u128::from(task.period_ns);
        let response_ns = entry.response_ns();
        let is_missed = entry.kind == PeriodEntryKind::Period && entry.is_missed(task.deadline_ns);
        write!(f, ",{},{release_ns},", entry.period)?;
        // A period that was never released has no actual release.
        if entry.kind != PeriodEntryKind::NotReleased {
            write!(f, "{}", entry.released_ns)?;
        }
        write!(
            f,
            ",{},{},{response_ns},{},{},{},{},{},{},{},{},{},{},",
            entry.start_latency_ns,
            entry.execution_ns,
            task.deadline_ns,
            entry.compute_ns,
            entry.communicate_ns,
            entry.idle_ns,
            entry.barrier_ns,
            u8::from(is_missed),
            u8::from(entry.is_overrun),
            u8::from(entry.end != PeriodOutcome::Success),
            entry.missing,
            u8::from(entry.is_broken),
        )?;
        let straggler = entry.straggler.and_then(|node| names.get(usize::from(node)));
        write!(f, "{},{},", straggler.map_or("", String::as_str), entry.backlog)?;
        let state = entry.state.and_then(|at| self.states().get(usize::from(at)));
        f.write_str(state.map_or("", String::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::TaskSet;

    #[test]
    fn a_line_has_a_value_for_each_name() {
        let text = "[[task]]\nname = \"a\"\nperiod = \"1ms\"\noffset = \"1us\"\nunits = 1";
        let set = TaskSet::parse(text).unwrap();
        let entry = PeriodEntry {
            start_latency_ns: 400_000,
            execution_ns: 600_001,
            straggler: Some(1),
            released_ns: 3_004_000,
            ..PeriodEntry::new(PeriodEntryKind::Period, 3)
        };
        let (names, task) = (["node1", "far"].map(str::to_owned), &set.tasks()[0]);
        let line = |entry| PeriodLogLine { node: "node1", names: &names, task, entry }.to_string();
        assert_eq!(
            line(&entry),
            "node1,a,period,3,3001000,3004000,400000,600001,1000001,1000000,0,0,0,0,1,0,0,0,0,\
             far,0,"
        );
        let abandoned = PeriodEntry {
            end: PeriodOutcome::Abandoned,
            start_latency_ns: 1,
            execution_ns: 1,
            ..entry
        };
        let abandoned_line = line(&abandoned);
        assert!(abandoned_line.contains(",1,0,1,0,0,far,"), "missed and failed: {abandoned_line}");
        let lost = PeriodEntry { backlog: 2, ..PeriodEntry::new(PeriodEntryKind::NotReleased, 4) };
        let unreleased = line(&lost);
        assert!(unreleased.starts_with("node1,a,unreleased,4,4001000,,0,"), "{unreleased}");
        for line in [line(&entry), abandoned_line, unreleased] {
            assert_eq!(line.split(',').count(), LOG_HEADER.split(',').count());
        }
    }
}
