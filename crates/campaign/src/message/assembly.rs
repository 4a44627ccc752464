//! Putting parts of reports together that come in any order, several times or never.

use std::collections::{BTreeMap, VecDeque};

use super::{Header, MessageError, Part, REPORT_BYTES_MAX};

/// Reports of one agent that may be incomplete at once. It tells one after the other, so that more
/// than one are left from before it was started again.
const OPEN_MAX: usize = 8;
/// Bytes of all incomplete reports of one agent together, at most: those of the largest report that
/// there can be.
const OPEN_BYTES_MAX: usize = REPORT_BYTES_MAX as usize;
/// Reports of which some parts are still missing, by their agents and identifiers: what one agent
/// sends is never taken for a part of another's report, nor does it take another's room.
#[derive(Default, Debug)]
pub struct Assembly {
    agents: BTreeMap<String, Open>,
}

/// An agent's incomplete reports, the one that was begun first at the front.
#[derive(Default, Debug)]
struct Open {
    reports: VecDeque<(String, Vec<Option<Vec<u8>>>)>,
    bytes: usize,
}

impl Assembly {
    /// Takes a part that came by the subject of `agent`, and gives the packed report that it
    /// completes. One that comes twice is taken once; one of another cut of the same report begins
    /// it anew. Where an agent has begun more than it may, what it began first is given up.
    ///
    /// # Errors
    ///
    /// One report is larger than any may be; it is given up.
    pub fn take(&mut self, agent: &str, part: &Part<'_>) -> Result<Option<Vec<u8>>, MessageError> {
        let open = self.agents.entry(agent.to_owned()).or_default();
        let whole = open.take(part);
        if open.reports.is_empty() {
            self.agents.remove(agent);
        }
        whole
    }
}

impl Open {
    fn take(&mut self, part: &Part<'_>) -> Result<Option<Vec<u8>>, MessageError> {
        let Header { id, part: number, parts } = &part.header;
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
        if let Some(place @ None) = taken.get_mut(number - 1) {
            *place = Some(part.content.to_vec());
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

    /// Gives up what is too much, this one last.
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
    use crate::message::cut;

    fn first_of_two(id: &str, agent: &str, assembly: &mut Assembly) {
        let part = cut(id, b"ab", 1).next().unwrap();
        assert_eq!(assembly.take(agent, &part).unwrap(), None);
    }

    #[test]
    fn what_never_completes_takes_nobody_elses_room() {
        let mut assembly = Assembly::default();
        first_of_two("whole", "n2", &mut assembly);
        for number in 0..=OPEN_MAX {
            first_of_two(&number.to_string(), "n1", &mut assembly);
        }
        assert_eq!(assembly.agents["n1"].bytes, OPEN_MAX);
        let second = |id| cut(id, b"ab", 1).nth(1).unwrap();
        assert_eq!(assembly.take("n1", &second("0")).unwrap(), None, "it was given up");
        let last = OPEN_MAX.to_string();
        assert_eq!(assembly.take("n1", &second(&last)).unwrap(), Some(b"ab".to_vec()));
        assert_eq!(assembly.take("n2", &second("whole")).unwrap(), Some(b"ab".to_vec()));
        assert!(!assembly.agents.contains_key("n2"));
    }

    #[test]
    fn parts_of_two_agents_are_not_mixed() {
        let mut assembly = Assembly::default();
        first_of_two("r", "n1", &mut assembly);
        let foreign = cut("r", b"xy", 1).nth(1).unwrap();
        assert_eq!(assembly.take("n2", &foreign).unwrap(), None);
        let own = cut("r", b"ab", 1).nth(1).unwrap();
        assert_eq!(assembly.take("n1", &own).unwrap(), Some(b"ab".to_vec()));
    }
}
