//! Requests and responses of the control socket. Pure.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::{
    GroupSpec, Relay, RelayError, RelayListing, RoutingTableError, RoutingTableSpec, fields,
};

/// Maximum length of a request line, in bytes; the longest names all children that a table can
/// hold.
pub(super) const REQUEST_BYTES_MAX: usize = 128 << 10;

/// Request to a relay.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ControlRequest {
    /// Request for the table and the counts.
    List,
    /// Addition of a group.
    AddGroup {
        /// The group.
        group: GroupSpec,
    },
    /// Removal of a group.
    RemoveGroup {
        /// Name of the group.
        group: String,
    },
    /// Addition of children to a group.
    AddChildren {
        /// Name of the group.
        group: String,
        /// Addresses of the children to add.
        #[serde(deserialize_with = "fields::addresses")]
        children: Vec<SocketAddr>,
    },
    /// Removal of children from a group.
    RemoveChildren {
        /// Name of the group.
        group: String,
        /// Addresses of the children to remove.
        #[serde(deserialize_with = "fields::addresses")]
        children: Vec<SocketAddr>,
    },
}

/// Class of a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlRefusalClass {
    /// The request is invalid.
    Request,
    /// Any other reason: this host lacks something that the relay needs, other changes are in
    /// progress, or a thread has not applied the change in time.
    Host,
}

/// Response of a relay.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum ControlResponse {
    /// The change was made and applied.
    Done,
    /// The state of the relay.
    Listing(Box<RelayListing>),
    /// Refused or failed request. Nothing was changed, unless a thread has not applied the change
    /// in time ([`RelayError::NotApplied`]) or could not be woken.
    Refused {
        /// The reason, in one line.
        reason: String,
        /// Class of the refusal.
        class: ControlRefusalClass,
    },
}

/// Parsed request, or the reason for which the line is not a request.
pub type RequestParseResult = Result<ControlRequest, String>;

impl ControlRequest {
    /// Parses a request. The reason of a refusal is one line.
    pub fn parse(line: &[u8]) -> RequestParseResult {
        serde_json::from_slice(line).map_err(|error| {
            let reason: String = error.to_string().chars().filter(|c| !c.is_control()).collect();
            format!("invalid request: {reason}")
        })
    }

    /// Returns the request as a line.
    #[must_use]
    pub fn to_line(&self) -> String {
        // A structure of names and numbers always has a JSON form, without line ends.
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }

    /// Applies the requested change to the specification of a table, without checking the result;
    /// [`Self::List`] changes nothing. After an error the specification may be partly changed.
    pub fn edit(self, spec: &mut RoutingTableSpec) -> Result<(), RoutingTableError> {
        match self {
            Self::List => {}
            Self::AddGroup { group } => spec.groups.push(group),
            Self::RemoveGroup { group } => {
                find_group(spec, &group)?;
                spec.groups.retain(|one| one.name != group);
            }
            Self::AddChildren { group, children } => {
                find_group(spec, &group)?.children.extend(children);
            }
            Self::RemoveChildren { group, children } => {
                let group = find_group(spec, &group)?;
                for child in children {
                    let index = group.children.iter().position(|one| *one == child);
                    let no_child = || RoutingTableError::NoChild(group.name.clone(), child);
                    group.children.remove(index.ok_or_else(no_child)?);
                }
            }
        }
        Ok(())
    }

    /// Executes the request on a relay.
    pub fn execute(self, relay: &Relay) -> ControlResponse {
        match self {
            Self::List => ControlResponse::Listing(Box::new(relay.listing())),
            change => match relay.change(|spec| change.edit(spec)) {
                Ok(()) => ControlResponse::Done,
                Err(error) => ControlResponse::refused(&error),
            },
        }
    }
}

fn find_group<'a>(
    spec: &'a mut RoutingTableSpec,
    name: &str,
) -> Result<&'a mut GroupSpec, RoutingTableError> {
    let printable_name = || name.chars().filter(|c| !c.is_control()).take(64).collect();
    let found = spec.groups.iter_mut().find(|group| group.name == name);
    found.ok_or_else(|| RoutingTableError::NoGroup(printable_name()))
}

impl ControlResponse {
    fn refused(error: &RelayError) -> Self {
        let class =
            if error.is_usage() { ControlRefusalClass::Request } else { ControlRefusalClass::Host };
        Self::Refused { reason: error.to_string(), class }
    }

    /// Returns the response as a line.
    #[must_use]
    pub fn to_line(&self) -> String {
        // The JSON form always exists, as for a request.
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }
}
