//! Reassembly of reports from fragments that arrive in any order, repeatedly or never.

use std::collections::{BTreeMap, VecDeque};

use super::{Fragment, FragmentHeader, MessageError, REPORT_BYTES_MAX};

/// Largest number of incomplete reports of one agent. An agent sends one after the other, so
/// several remain only from before its restart.
const OPEN_MAX: usize = 8;
/// Largest size of all incomplete reports of one agent together, in bytes: that of the largest
/// possible report.
const OPEN_BYTES_MAX: usize = REPORT_BYTES_MAX as usize;
/// Incomplete reports, by agent and identifier: a fragment of one agent never counts for another's
/// report, nor does it use another's memory.
#[derive(Default, Debug)]
pub struct Reassembly {
    agents: BTreeMap<String, IncompleteReports>,
}

/// Incomplete reports of one agent, oldest first.
#[derive(Default, Debug)]
struct IncompleteReports {
    reports: VecDeque<(String, Vec<Option<Vec<u8>>>)>,
    bytes: usize,
}

impl Reassembly {
    /// Adds a fragment received on the subject of `agent`, and returns the packed report that it
    /// completes. A repeated one counts once; one of a different cut of the same report restarts
    /// it. If an agent has too many incomplete reports, its oldest one is dropped.
    ///
    /// # Errors
    ///
    /// One report is too large; it is dropped.
    pub fn take(
        &mut self,
        agent: &str,
        part: &Fragment<'_>,
    ) -> Result<Option<Vec<u8>>, MessageError> {
        let open = self.agents.entry(agent.to_owned()).or_default();
        let whole = open.take(part);
        if open.reports.is_empty() {
            self.agents.remove(agent);
        }
        whole
    }
}

impl IncompleteReports {
    fn take(&mut self, part: &Fragment<'_>) -> Result<Option<Vec<u8>>, MessageError> {
        let FragmentHeader { id, part: number, parts } = &part.header;
        if *parts == 1 {
            self.forget(id);
            return Ok(Some(part.content.to_vec()));
        }
        if self.parts(id).is_some_and(|taken| taken.len() != *parts) {
            self.forget(id);
        }
        if self.parts(id).is_none() {
            self.reports.push_back((id.clone(), vec![None; *parts]));
        }
        let Some(taken) = self.parts(id) else { return Ok(None) };
        let mut more = 0;
        if let Some(slot @ None) = taken.get_mut(number - 1) {
            *slot = Some(part.content.to_vec());
            more = part.content.len();
        }
        let whole = taken
            .iter()
            .all(Option::is_some)
            .then(|| taken.iter().flatten().map(Vec::as_slice).collect::<Vec<_>>().concat());
        self.bytes += more;
        if whole.is_some() {
            self.forget(id);
            return Ok(whole);
        }
        self.bound(id)
    }

    /// Drops reports beyond the limits, this one last.
    fn bound(&mut self, id: &str) -> Result<Option<Vec<u8>>, MessageError> {
        while self.reports.len() > OPEN_MAX || self.bytes > OPEN_BYTES_MAX {
            let other = self.reports.iter().map(|(other, _)| other).find(|other| *other != id);
            let Some(other) = other.cloned() else {
                self.forget(id);
                return Err(MessageError::TooLarge);
            };
            self.forget(&other);
        }
        Ok(None)
    }

    fn parts(&mut self, id: &str) -> Option<&mut Vec<Option<Vec<u8>>>> {
        self.reports.iter_mut().find(|(other, _)| other == id).map(|(_, parts)| parts)
    }

    fn forget(&mut self, id: &str) {
        let at = self.reports.iter().position(|(other, _)| other == id);
        let Some((_, taken)) = at.and_then(|at| self.reports.remove(at)) else { return };
        self.bytes -= taken.iter().flatten().map(Vec::len).sum::<usize>();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fragment;

    fn first_of_two(id: &str, agent: &str, assembly: &mut Reassembly) {
        let part = fragment(id, b"ab", 1).next().unwrap();
        assert_eq!(assembly.take(agent, &part).unwrap(), None);
    }

    #[test]
    fn incomplete_reports_take_no_room_of_other_agents() {
        let mut assembly = Reassembly::default();
        first_of_two("whole", "n2", &mut assembly);
        for number in 0..=OPEN_MAX {
            first_of_two(&number.to_string(), "n1", &mut assembly);
        }
        assert_eq!(assembly.agents["n1"].bytes, OPEN_MAX);
        let second = |id| fragment(id, b"ab", 1).nth(1).unwrap();
        assert_eq!(assembly.take("n1", &second("0")).unwrap(), None, "it was given up");
        let last = OPEN_MAX.to_string();
        assert_eq!(assembly.take("n1", &second(&last)).unwrap(), Some(b"ab".to_vec()));
        assert_eq!(assembly.take("n2", &second("whole")).unwrap(), Some(b"ab".to_vec()));
        assert!(!assembly.agents.contains_key("n2"));
    }

    #[test]
    fn parts_of_two_agents_are_not_mixed() {
        let mut assembly = Reassembly::default();
        first_of_two("r", "n1", &mut assembly);
        let foreign = fragment("r", b"xy", 1).nth(1).unwrap();
        assert_eq!(assembly.take("n2", &foreign).unwrap(), None);
        let own = fragment("r", b"ab", 1).nth(1).unwrap();
        assert_eq!(assembly.take("n1", &own).unwrap(), Some(b"ab".to_vec()));
    }
}
