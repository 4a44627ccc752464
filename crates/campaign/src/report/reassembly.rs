//! Reassembly of reports from fragments that arrive in any order, repeatedly, or not at all.

use std::collections::{BTreeMap, VecDeque};

use super::{AgentReportError, REPORT_BYTES_MAX, ReportFragment, ReportFragmentHeader};

/// Largest number of incomplete reports of one agent. An agent sends one report at a time, so
/// further incomplete ones are from before a restart.
const INCOMPLETE_MAX: usize = 8;
/// Largest size of all incomplete reports of one agent together, in bytes.
const INCOMPLETE_BYTES_MAX: usize = REPORT_BYTES_MAX as usize;
/// Incomplete reports of all agents. They are separate for each agent, so that fragments of one
/// agent neither complete a report of another nor use its limits.
#[derive(Default, Debug)]
pub struct ReportReassembly {
    agents: BTreeMap<String, IncompleteAgentReports>,
}

/// Incomplete reports of one agent, oldest first.
#[derive(Default, Debug)]
struct IncompleteAgentReports {
    reports: VecDeque<(String, Vec<Option<Vec<u8>>>)>,
    bytes: usize,
}

impl ReportReassembly {
    /// Adds a fragment received on the subject of `agent`, and returns the packed report that it
    /// completes; otherwise `None`. A repeated fragment is ignored; one that states another number
    /// of fragments restarts its report. If an agent has too many incomplete reports, the oldest
    /// one is dropped.
    ///
    /// # Errors
    ///
    /// The report alone exceeds the size limit; it is dropped.
    pub fn add_fragment(
        &mut self,
        agent: &str,
        part: &ReportFragment<'_>,
    ) -> Result<Option<Vec<u8>>, AgentReportError> {
        let incomplete = self.agents.entry(agent.to_owned()).or_default();
        let completed = incomplete.add_fragment(part);
        if incomplete.reports.is_empty() {
            self.agents.remove(agent);
        }
        completed
    }
}

impl IncompleteAgentReports {
    fn add_fragment(
        &mut self,
        part: &ReportFragment<'_>,
    ) -> Result<Option<Vec<u8>>, AgentReportError> {
        let ReportFragmentHeader { id, part: number, parts } = &part.header;
        if *parts == 1 {
            self.remove(id);
            return Ok(Some(part.content.to_vec()));
        }
        if self.fragments_of(id).is_some_and(|taken| taken.len() != *parts) {
            self.remove(id);
        }
        if self.fragments_of(id).is_none() {
            self.reports.push_back((id.clone(), vec![None; *parts]));
        }
        let Some(received) = self.fragments_of(id) else { return Ok(None) };
        let mut added_bytes = 0;
        if let Some(slot @ None) = received.get_mut(number - 1) {
            *slot = Some(part.content.to_vec());
            added_bytes = part.content.len();
        }
        let completed = received
            .iter()
            .all(Option::is_some)
            .then(|| received.iter().flatten().map(Vec::as_slice).collect::<Vec<_>>().concat());
        self.bytes += added_bytes;
        if completed.is_some() {
            self.remove(id);
            return Ok(completed);
        }
        self.enforce_limits(id)
    }

    /// Drops the oldest other reports until the limits are met. If the report `id` alone exceeds
    /// them, drops it and returns an error.
    fn enforce_limits(&mut self, id: &str) -> Result<Option<Vec<u8>>, AgentReportError> {
        while self.reports.len() > INCOMPLETE_MAX || self.bytes > INCOMPLETE_BYTES_MAX {
            let other = self.reports.iter().map(|(other, _)| other).find(|other| *other != id);
            let Some(other) = other.cloned() else {
                self.remove(id);
                return Err(AgentReportError::TooLarge);
            };
            self.remove(&other);
        }
        Ok(None)
    }

    fn fragments_of(&mut self, id: &str) -> Option<&mut Vec<Option<Vec<u8>>>> {
        self.reports.iter_mut().find(|(other, _)| other == id).map(|(_, parts)| parts)
    }

    fn remove(&mut self, id: &str) {
        let index = self.reports.iter().position(|(other, _)| other == id);
        let Some((_, taken)) = index.and_then(|at| self.reports.remove(at)) else { return };
        self.bytes -= taken.iter().flatten().map(Vec::len).sum::<usize>();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fragments;

    fn first_of_two(id: &str, agent: &str, assembly: &mut ReportReassembly) {
        let part = fragments(id, b"ab", 1).next().unwrap();
        assert_eq!(assembly.add_fragment(agent, &part).unwrap(), None);
    }

    #[test]
    fn incomplete_reports_take_no_room_of_other_agents() {
        let mut assembly = ReportReassembly::default();
        first_of_two("whole", "n2", &mut assembly);
        for number in 0..=INCOMPLETE_MAX {
            first_of_two(&number.to_string(), "n1", &mut assembly);
        }
        assert_eq!(assembly.agents["n1"].bytes, INCOMPLETE_MAX);
        let second = |id| fragments(id, b"ab", 1).nth(1).unwrap();
        assert_eq!(assembly.add_fragment("n1", &second("0")).unwrap(), None, "it was given up");
        let last = INCOMPLETE_MAX.to_string();
        assert_eq!(assembly.add_fragment("n1", &second(&last)).unwrap(), Some(b"ab".to_vec()));
        assert_eq!(assembly.add_fragment("n2", &second("whole")).unwrap(), Some(b"ab".to_vec()));
        assert!(!assembly.agents.contains_key("n2"));
    }

    #[test]
    fn parts_of_two_agents_are_not_mixed() {
        let mut assembly = ReportReassembly::default();
        first_of_two("r", "n1", &mut assembly);
        let foreign = fragments("r", b"xy", 1).nth(1).unwrap();
        assert_eq!(assembly.add_fragment("n2", &foreign).unwrap(), None);
        let own = fragments("r", b"ab", 1).nth(1).unwrap();
        assert_eq!(assembly.add_fragment("n1", &own).unwrap(), Some(b"ab".to_vec()));
    }
}
