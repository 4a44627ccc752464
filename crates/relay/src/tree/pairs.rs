//! Measured delays between pairs of nodes: a file with a line for each, `from,to,delay_us`.

use std::collections::HashMap;

use super::TreeFileError;
use super::error::{check_name, checked_time_ns};

/// Maximum number of nodes in a file of pairs.
pub const PAIR_NODES_MAX: usize = 1_024;
/// First line of the file.
const HEADER: &str = "from,to,delay_us";

/// Nodes, and the transmission delays between pairs of them, as far as these are known.
#[derive(Clone, PartialEq, Debug)]
pub struct PairDelays {
    names: Vec<String>,
    /// Delays from each node to each, row by row, in ns; infinite if unknown.
    delays_ns: Vec<f64>,
}

impl PairDelays {
    /// Parses a file of pairs: the header `from,to,delay_us`, then a line for each pair. Empty
    /// lines and those that begin with `#` are ignored. A pair listed in one direction only applies
    /// to the other too. Nodes are in the order in which the file names them.
    pub fn parse(text: &str) -> Result<Self, TreeFileError> {
        let is_entry = |(_, line): &(usize, &str)| !line.is_empty() && !line.starts_with('#');
        let numbered = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
        let mut lines = numbered.filter(is_entry);
        match lines.next() {
            Some((_, HEADER)) => {}
            Some((at, _)) => {
                return Err(TreeFileError::new(at, format!("the first line must be '{HEADER}'")));
            }
            None => {
                return Err(TreeFileError::new(
                    1,
                    format!("no pairs; the first line must be '{HEADER}'"),
                ));
            }
        }
        let mut names: Vec<String> = Vec::new();
        let mut indices: HashMap<String, usize> = HashMap::new();
        let mut pairs: HashMap<(usize, usize), (usize, f64)> = HashMap::new();
        for (at, line) in lines {
            let error_at_line = |reason: String| TreeFileError::new(at, reason);
            let (from, to, delay_ns) = parse_fields(line).map_err(error_at_line)?;
            let mut index_of = |name: &str| {
                check_name(name)?;
                if let Some(index) = indices.get(name) {
                    return Ok(*index);
                }
                if names.len() == PAIR_NODES_MAX {
                    return Err(format!("there are more than {PAIR_NODES_MAX} nodes"));
                }
                names.push(name.to_owned());
                indices.insert(name.to_owned(), names.len() - 1);
                Ok(names.len() - 1)
            };
            let pair =
                (index_of(from).map_err(error_at_line)?, index_of(to).map_err(error_at_line)?);
            if pair.0 == pair.1 {
                return Err(error_at_line(format!("'{from}' and '{to}' are the same node")));
            }
            if let Some((first, _)) = pairs.insert(pair, (at, delay_ns)) {
                return Err(error_at_line(format!(
                    "the pair '{from}', '{to}' occurs in line {first} already"
                )));
            }
        }
        let mut delays = Self::new(names);
        if delays.names.len() < 2 {
            return Err(TreeFileError::new(1, "no pairs; write one per line after the header"));
        }
        for ((from, to), (_, delay_ns)) in &pairs {
            delays.set(*from, *to, *delay_ns);
            if !pairs.contains_key(&(*to, *from)) {
                delays.set(*to, *from, *delay_ns);
            }
        }
        Ok(delays)
    }

    /// Creates nodes without a known delay between any two of them.
    #[must_use]
    pub fn new(names: Vec<String>) -> Self {
        let delays_ns = vec![f64::INFINITY; names.len() * names.len()];
        Self { names, delays_ns }
    }

    /// Sets the delay of one direction, in ns.
    ///
    /// # Panics
    ///
    /// If there is no such node.
    pub fn set(&mut self, from: usize, to: usize, delay_ns: f64) {
        let row = from * self.names.len();
        self.delays_ns[row..row + self.names.len()][to] = delay_ns;
    }

    /// Returns the nodes' names.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the transmission delay c from one node to another, in ns; infinite if unknown.
    ///
    /// # Panics
    ///
    /// If there is no such node.
    #[must_use]
    pub fn delay_ns(&self, from: usize, to: usize) -> f64 {
        self.delays_from(from)[to]
    }

    /// Returns the index of the node with this name; `None` if there is none.
    #[must_use]
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| known == name)
    }

    /// Returns the transmission delays from one node to every node, in ns; infinite if unknown.
    pub(super) fn delays_from(&self, from: usize) -> &[f64] {
        &self.delays_ns[from * self.names.len()..][..self.names.len()]
    }
}

fn parse_fields(line: &str) -> Result<(&str, &str, f64), String> {
    let expected_form = || format!("write '{HEADER}', such as 'a,b,120.5'");
    let mut fields = line.split(',').map(str::trim);
    let (Some(from), Some(to), Some(delay), None) =
        (fields.next(), fields.next(), fields.next(), fields.next())
    else {
        return Err(expected_form());
    };
    let us = delay.parse().map_err(|_| expected_form())?;
    Ok((from, to, checked_time_ns("delay_us", us)?))
}
