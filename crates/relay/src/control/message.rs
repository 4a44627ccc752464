//! What is asked for at the control socket, and what is answered. Pure.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::{GroupSpec, Listing, Relay, RelayError, Spec, TableError, fields};

/// A line longer than this is no request: the longest names all children that a table takes.
pub(super) const REQUEST_BYTES_MAX: usize = 128 << 10;

/// What is asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// The table and what was counted.
    List,
    /// A new group.
    AddGroup {
        /// The group.
        group: GroupSpec,
    },
    /// A group less.
    RemoveGroup {
        /// Its name.
        group: String,
    },
    /// More children of a group.
    AddChildren {
        /// Its name.
        group: String,
        /// Where they listen.
        #[serde(deserialize_with = "fields::addresses")]
        children: Vec<SocketAddr>,
    },
    /// Fewer children of a group.
    RemoveChildren {
        /// Its name.
        group: String,
        /// Where they listen.
        #[serde(deserialize_with = "fields::addresses")]
        children: Vec<SocketAddr>,
    },
}

/// Whose fault a refusal is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// What was asked for cannot be.
    Request,
    /// The relay's host lacks something.
    Host,
}

/// What is answered.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// It was done, and is in force.
    Done,
    /// The state of the relay.
    Listing(Box<Listing>),
    /// Nothing was changed.
    Refused {
        /// Why, in one line.
        reason: String,
        /// Whose fault it is.
        fault: Fault,
    },
}

/// What a line asks for, or why it asks for nothing.
pub type Requested = Result<Request, String>;

impl Request {
    /// Reads a request. The reason of a refusal is one line.
    pub fn parse(line: &[u8]) -> Requested {
        serde_json::from_slice(line).map_err(|error| {
            let reason: String = error.to_string().chars().filter(|c| !c.is_control()).collect();
            format!("that is no request: {reason}")
        })
    }

    /// The same as a line.
    #[must_use]
    pub fn to_line(&self) -> String {
        // A structure of names and numbers always has a JSON form, without line ends.
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }

    /// Makes the change that is asked for in a table that was asked for before.
    pub fn edit(self, spec: &mut Spec) -> Result<(), TableError> {
        match self {
            Self::List => {}
            Self::AddGroup { group } => spec.groups.push(group),
            Self::RemoveGroup { group } => {
                find(spec, &group)?;
                spec.groups.retain(|one| one.name != group);
            }
            Self::AddChildren { group, children } => {
                find(spec, &group)?.children.extend(children);
            }
            Self::RemoveChildren { group, children } => {
                let group = find(spec, &group)?;
                for child in children {
                    let place = group.children.iter().position(|one| *one == child);
                    let none = || TableError::NoChild(group.name.clone(), child);
                    group.children.remove(place.ok_or_else(none)?);
                }
            }
        }
        Ok(())
    }

    /// Has a relay do it.
    pub fn carry_out(self, relay: &Relay) -> Answer {
        match self {
            Self::List => Answer::Listing(Box::new(relay.listing())),
            change => match relay.change(|spec| change.edit(spec)) {
                Ok(()) => Answer::Done,
                Err(error) => Answer::refused(&error),
            },
        }
    }
}

fn find<'a>(spec: &'a mut Spec, name: &str) -> Result<&'a mut GroupSpec, TableError> {
    let shown = || name.chars().filter(|c| !c.is_control()).take(64).collect();
    let found = spec.groups.iter_mut().find(|group| group.name == name);
    found.ok_or_else(|| TableError::NoGroup(shown()))
}

impl Answer {
    fn refused(error: &RelayError) -> Self {
        let fault = if error.is_usage() { Fault::Request } else { Fault::Host };
        Self::Refused { reason: error.to_string(), fault }
    }

    /// The answer as a line.
    #[must_use]
    pub fn to_line(&self) -> String {
        // As for a request.
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }
}
