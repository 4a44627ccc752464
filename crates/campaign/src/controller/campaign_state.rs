//! State that a resuming controller needs and agents cannot report: the plan, the agents available
//! for placement, and the start time. It is stored at the broker before the first order.

use serde::{Deserialize, Serialize};

use super::eligibility::PresentAgents;
use super::run::CampaignError;
use crate::file_error::sanitised;
use crate::order::{AgentState, PROTOCOL, SHOWN_MAX};
use crate::packing;
use crate::placement::{Placement, assign_roles};
use crate::plan::Plan;

/// Largest size of the state before compression, in bytes.
const BYTES_MAX: u64 = 64 << 20;

/// State of a campaign as stored at the broker.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CampaignState {
    protocol: u32,
    version: String,
    /// Text of the plan.
    pub plan: String,
    /// Values of the plan's parameters, by name.
    pub settings: Vec<(String, String)>,
    /// Agents available for placement. Placement is deterministic, so its result is not stored.
    pub agents: Vec<AgentState>,
    /// Names of the present agents that could not be used, and the reasons.
    pub unusable: Vec<(String, String)>,
    /// Start time, UTC in ns since 1970, once it is set.
    pub at_ns: Option<i64>,
    /// True if the campaign was abandoned.
    pub abandoned: bool,
    /// Controller that last wrote the state, identified by its start time: UTC, in ns since 1970.
    controller: i64,
}

/// Part of the state that is the same in all versions of horolog.
#[derive(Deserialize)]
struct CampaignStateHeader {
    protocol: u32,
    version: String,
}

impl CampaignState {
    pub(super) fn new(
        version: &str,
        plan: String,
        settings: Vec<(String, String)>,
        eligible: PresentAgents,
    ) -> Self {
        let version = version.to_owned();
        Self {
            protocol: PROTOCOL,
            version,
            plan,
            settings,
            agents: eligible.usable,
            unusable: eligible.unusable,
            at_ns: None,
            abandoned: false,
            controller: 0,
        }
    }

    /// Records the controller started at `now_ns` (UTC, in ns since 1970) as the writer.
    pub(super) const fn take_over(&mut self, now_ns: i64) {
        self.controller = now_ns;
    }

    /// Returns true if both were written by the same controller.
    pub(super) const fn has_same_controller(&self, other: &Self) -> bool {
        self.controller == other.controller
    }

    /// Serialises the state.
    pub(super) fn pack(&self) -> Vec<u8> {
        // Everything in it has a representation in JSON.
        packing::pack(self).unwrap_or_default()
    }

    /// Parses the state. `Err` holds the version of horolog that wrote it, or `another version` if
    /// that cannot be read.
    pub(super) fn unpack(packed: &[u8], version: &str) -> Result<Self, String> {
        let unknown = || "another version".to_owned();
        let text = packing::unpack(packed, BYTES_MAX).ok().flatten().ok_or_else(unknown)?;
        let head: CampaignStateHeader = serde_json::from_slice(&text).map_err(|_| unknown())?;
        if head.protocol != PROTOCOL || head.version != version {
            return Err(sanitised(&head.version, SHOWN_MAX));
        }
        serde_json::from_slice(&text).map_err(|_| unknown())
    }

    /// Computes the placement of the roles.
    pub(super) fn placement(&self, plan: &Plan) -> Result<Placement, CampaignError> {
        let candidates: Vec<_> = self.agents.iter().map(Into::into).collect();
        let unusable = Vec::new();
        assign_roles(plan, &candidates)
            .map_err(|fault| CampaignError::Placement { fault, unusable })
    }
}
