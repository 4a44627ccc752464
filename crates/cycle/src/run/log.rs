//! What became of each period, as a line of a file (RFC 4180).

use std::fmt::{self, Display, Formatter};

use crate::entry::{End, Entry, Part};
use crate::task::{Task, Work};

/// The names of a line's fields.
pub const LOG_HEADER: &str = "node,task,part,cycle,release_ns,lateness_ns,execution_ns,response_ns,\
                              deadline_ns,computation_ns,communication_ns,idle_ns,\
                              barrier_ns,missed,overrun,failed,messages_missing,barrier_broken,\
                              awaited,left,state";

/// A period, a superstep or an event of a task.
#[derive(Clone, Copy, Debug)]
pub struct LogLine<'a> {
    /// The node.
    pub node: &'a str,
    /// The task.
    pub task: &'a Task,
    pub(crate) entry: &'a Entry,
}

impl LogLine<'_> {
    fn states(&self) -> &[String] {
        match &self.task.work {
            Work::Program(program) => &program.states,
            _ => &[],
        }
    }
}

impl Display for LogLine<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { node, task, entry } = self;
        write!(f, "{node},{},", task.name)?;
        match entry.part {
            Part::Period => f.write_str("period")?,
            Part::Step(step) => write!(f, "step{}", u16::from(step) + 1)?,
            Part::Event => f.write_str("event")?,
            Part::Unreleased => f.write_str("unreleased")?,
        }
        let release_ns =
            u128::from(task.offset_ns) + u128::from(entry.cycle) * u128::from(task.period_ns);
        let response_ns = entry.response_ns();
        let is_missed = entry.part == Part::Period && response_ns > task.deadline_ns;
        write!(
            f,
            ",{},{release_ns},{},{},{response_ns},{},{},{},{},{},{},{},{},{},{},",
            entry.cycle,
            entry.late_ns,
            entry.spent_ns,
            task.deadline_ns,
            entry.compute_ns,
            entry.communicate_ns,
            entry.idle_ns,
            entry.barrier_ns,
            u8::from(is_missed),
            u8::from(entry.is_overrun),
            u8::from(entry.end != End::Well),
            entry.missing,
            u8::from(entry.is_broken),
        )?;
        if let Some(awaited) = entry.awaited {
            write!(f, "{}", super::name_of(awaited))?;
        }
        write!(f, ",{},", entry.left)?;
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
        let entry = Entry {
            late_ns: 400_000,
            spent_ns: 600_001,
            awaited: Some(2),
            ..Entry::new(Part::Period, 3)
        };
        let line = LogLine { node: "node1", task: &set.tasks()[0], entry: &entry }.to_string();
        assert_eq!(
            line,
            "node1,a,period,3,3001000,400000,600001,1000001,1000000,0,0,0,0,1,0,0,0,0,node3,0,"
        );
        assert_eq!(line.split(',').count(), LOG_HEADER.split(',').count());
    }
}
