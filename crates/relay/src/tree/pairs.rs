//! Delays between pairs of nodes, as they were measured: a file with a line for each,
//! `from,to,delay_us`.

use std::collections::HashMap;

use super::Fault;
use super::fault::{check_name, time_ns};

/// Nodes of a file of pairs.
pub const PAIRED_MAX: usize = 1_024;
/// The first line.
const HEADER: &str = "from,to,delay_us";

/// Nodes, and the transmission delays between them as far as they are known.
#[derive(Clone, PartialEq, Debug)]
pub struct Pairs {
    names: Vec<String>,
    /// From each node to each, row by row, in ns; without a bound where it is not known.
    delays_ns: Vec<f64>,
}

impl Pairs {
    /// Reads a file of pairs: the header `from,to,delay_us`, then a line for each pair. Empty lines
    /// and those that begin with `#` say nothing. A pair that stands there in one direction alone
    /// holds for the other too. Nodes come in the order in which the file names them.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let says = |(_, line): &(usize, &str)| !line.is_empty() && !line.starts_with('#');
        let numbered = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
        let mut lines = numbered.filter(says);
        match lines.next() {
            Some((_, HEADER)) => {}
            Some((at, _)) => return Err(Fault::new(at, format!("begin with '{HEADER}'"))),
            None => return Err(Fault::new(1, format!("no pairs; begin with '{HEADER}'"))),
        }
        let mut names: Vec<String> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        let mut pairs: HashMap<(usize, usize), (usize, f64)> = HashMap::new();
        for (at, line) in lines {
            let fault = |reason: String| Fault::new(at, reason);
            let (from, to, delay_ns) = fields(line).map_err(fault)?;
            let mut place = |name: &str| {
                check_name(name)?;
                if let Some(place) = places.get(name) {
                    return Ok(*place);
                }
                if names.len() == PAIRED_MAX {
                    return Err(format!("these are more than {PAIRED_MAX} nodes"));
                }
                names.push(name.to_owned());
                places.insert(name.to_owned(), names.len() - 1);
                Ok(names.len() - 1)
            };
            let pair = (place(from).map_err(fault)?, place(to).map_err(fault)?);
            if pair.0 == pair.1 {
                return Err(fault(format!("'{from}' and '{to}' are one node")));
            }
            if let Some((first, _)) = pairs.insert(pair, (at, delay_ns)) {
                return Err(fault(format!("the pair '{from}', '{to}' is in line {first} already")));
            }
        }
        let mut known = Self::new(names);
        if known.names.len() < 2 {
            return Err(Fault::new(1, "no pairs; write a line for each behind the header"));
        }
        for ((from, to), (_, delay_ns)) in &pairs {
            known.set(*from, *to, *delay_ns);
            if !pairs.contains_key(&(*to, *from)) {
                known.set(*to, *from, *delay_ns);
            }
        }
        Ok(known)
    }

    /// Nodes without a known delay between any two of them.
    #[must_use]
    pub fn new(names: Vec<String>) -> Self {
        let delays_ns = vec![f64::INFINITY; names.len() * names.len()];
        Self { names, delays_ns }
    }

    /// Makes a delay known, in ns, of one direction.
    ///
    /// # Panics
    ///
    /// When there is no such node.
    pub fn set(&mut self, from: usize, to: usize, delay_ns: f64) {
        let row = from * self.names.len();
        self.delays_ns[row..row + self.names.len()][to] = delay_ns;
    }

    /// The nodes' names.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// c from one node to another, in ns; infinite where it is not known.
    ///
    /// # Panics
    ///
    /// When there is no such node.
    #[must_use]
    pub fn delay_ns(&self, from: usize, to: usize) -> f64 {
        self.row(from)[to]
    }

    /// The place of a node.
    #[must_use]
    pub fn place(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| known == name)
    }

    /// c from one node to each.
    pub(super) fn row(&self, from: usize) -> &[f64] {
        &self.delays_ns[from * self.names.len()..][..self.names.len()]
    }
}

fn fields(line: &str) -> Result<(&str, &str, f64), String> {
    let form = || format!("write '{HEADER}', such as 'a,b,120.5'");
    let mut fields = line.split(',').map(str::trim);
    let (Some(from), Some(to), Some(delay), None) =
        (fields.next(), fields.next(), fields.next(), fields.next())
    else {
        return Err(form());
    };
    let us = delay.parse().map_err(|_| form())?;
    Ok((from, to, time_ns("delay_us", us)?))
}
