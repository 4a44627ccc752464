//! What a controller that goes on has to know and agents cannot tell: the plan, who there was to
//! place it on, and the instant. It lies at the broker from before the first order on.

use serde::{Deserialize, Serialize};

use super::look::Look;
use super::run::CampaignError;
use crate::fault::shown;
use crate::order::{AgentState, PROTOCOL, SHOWN_MAX};
use crate::packing;
use crate::place::{Placement, place};
use crate::plan::Plan;

/// Bytes of it before it is packed, at most.
const BYTES_MAX: u64 = 64 << 20;

/// A campaign's state.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Course {
    protocol: u32,
    version: String,
    /// The plan's text.
    pub plan: String,
    /// Values for its parameters.
    pub settings: Vec<(String, String)>,
    /// The agents that could be used. Placing is the same each time, so where it went is not here.
    pub agents: Vec<AgentState>,
    /// Those that could not, and why.
    pub unusable: Vec<(String, String)>,
    /// The instant, UTC in ns since 1970, once there is one.
    pub at_ns: Option<i64>,
    /// Whether it has been given up.
    pub abandoned: bool,
    /// Which controller wrote it last.
    controller: i64,
}

/// What any version says.
#[derive(Deserialize)]
struct Head {
    protocol: u32,
    version: String,
}

impl Course {
    pub(super) fn new(
        version: &str,
        plan: String,
        settings: Vec<(String, String)>,
        look: Look,
    ) -> Self {
        let version = version.to_owned();
        Self {
            protocol: PROTOCOL,
            version,
            plan,
            settings,
            agents: look.usable,
            unusable: look.unusable,
            at_ns: None,
            abandoned: false,
            controller: 0,
        }
    }

    /// From here on it is of the controller that began now, in ns.
    pub(super) const fn take_over(&mut self, now_ns: i64) {
        self.controller = now_ns;
    }

    /// Whether both were written by one controller.
    pub(super) const fn is_of_same_controller(&self, other: &Self) -> bool {
        self.controller == other.controller
    }

    /// As bytes.
    pub(super) fn pack(&self) -> Vec<u8> {
        // All of it has a form in JSON.
        packing::pack(self).unwrap_or_default()
    }

    /// From bytes; the error is the version that wrote them.
    pub(super) fn unpack(packed: &[u8], version: &str) -> Result<Self, String> {
        let unknown = || "another version".to_owned();
        let text = packing::unpack(packed, BYTES_MAX).ok().flatten().ok_or_else(unknown)?;
        let head: Head = serde_json::from_slice(&text).map_err(|_| unknown())?;
        if head.protocol != PROTOCOL || head.version != version {
            return Err(shown(&head.version, SHOWN_MAX));
        }
        serde_json::from_slice(&text).map_err(|_| unknown())
    }

    /// Where the roles went.
    pub(super) fn place(&self, plan: &Plan) -> Result<Placement, CampaignError> {
        let candidates: Vec<_> = self.agents.iter().map(Into::into).collect();
        let unusable = Vec::new();
        place(plan, &candidates).map_err(|fault| CampaignError::Place { fault, unusable })
    }
}
