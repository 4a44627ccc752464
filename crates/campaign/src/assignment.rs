//! Assignment of an agent as stored at the broker: its order and the last command. Each assignment
//! is complete, so an agent that missed earlier ones, or was restarted, needs only the latest.
//! Unreadable data is distinguished from data of another version, which the agent reports to the
//! controller.

use serde::{Deserialize, Serialize};

use crate::CampaignId;
use crate::file_error::sanitised;
use crate::order::{Order, OrderCommand, PROTOCOL, SHOWN_MAX};
use crate::packing;

/// Largest size of an assignment before compression, in bytes.
pub const ASSIGNMENT_BYTES_MAX: u64 = 64 << 20;

/// Assignment of an agent: its order and the last command.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assignment {
    /// Order to execute.
    pub order: Order,
    /// Last command; `None` if services are to be started and wait for the start time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub word: Option<OrderCommand>,
}

/// Part of an assignment that is the same in all versions of horolog.
#[derive(Deserialize)]
struct AssignmentHeader {
    order: OrderHeader,
}

#[derive(Deserialize)]
struct OrderHeader {
    protocol: u32,
    version: String,
    campaign: CampaignId,
}

/// Reason why bytes cannot be read as an assignment.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AssignmentError {
    /// The data is not an assignment.
    #[error("unreadable order")]
    Unreadable,
    /// The assignment was written by another version of horolog.
    #[error("{reason}")]
    OtherVersion {
        /// Campaign.
        campaign: CampaignId,
        /// Reason, in one line.
        reason: String,
    },
}

impl Assignment {
    /// Serialises the assignment as compressed bytes.
    #[must_use]
    pub fn pack(&self) -> Vec<u8> {
        // Everything in it has a representation in JSON.
        packing::pack(self).unwrap_or_default()
    }

    /// Parses the bytes written by [`Self::pack`].
    ///
    /// # Errors
    ///
    /// The bytes are not an assignment, or were written by another version.
    pub fn unpack(packed: &[u8]) -> Result<Self, AssignmentError> {
        let Ok(Some(text)) = packing::unpack(packed, ASSIGNMENT_BYTES_MAX) else {
            return Err(AssignmentError::Unreadable);
        };
        serde_json::from_slice(&text).map_err(|_| version_error(&text))
    }
}

fn version_error(text: &[u8]) -> AssignmentError {
    let Ok(AssignmentHeader { order }) = serde_json::from_slice::<AssignmentHeader>(text) else {
        return AssignmentError::Unreadable;
    };
    let version: String = sanitised(&order.version, SHOWN_MAX);
    let reason = format!(
        "cannot read the order: it is of horolog {version}, protocol {}, this is {}, protocol \
         {PROTOCOL}; install one version",
        order.protocol,
        env!("CARGO_PKG_VERSION")
    );
    AssignmentError::OtherVersion { campaign: order.campaign, reason }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn packed(value: &serde_json::Value) -> Vec<u8> {
        packing::pack(value).unwrap()
    }

    fn instruction() -> serde_json::Value {
        json!({
            "order": {
                "protocol": 1, "version": "0.1.0", "campaign": "c-1", "agent": "n1",
                "plan_hash": "00", "deadline_ns": 1,
                "jobs": [{ "id": "a.1", "kind": "query", "options": {}, "service": false }],
            },
            "word": { "word": "start", "at-ns": 5 },
        })
    }

    #[test]
    fn instructions_round_trip() {
        let read = Assignment::unpack(&packed(&instruction())).unwrap();
        assert_eq!(read.word, Some(OrderCommand::Start { at_ns: 5 }));
        assert_eq!(Assignment::unpack(&read.pack()), Ok(read));
    }

    #[test]
    fn another_version_is_distinguished_from_an_invalid_assignment() {
        let mut later = instruction();
        later["order"]["protocol"] = json!(2);
        later["order"]["version"] = json!("9.0\n");
        later["order"]["colour"] = json!("blue");
        let Err(AssignmentError::OtherVersion { campaign, reason }) =
            Assignment::unpack(&packed(&later))
        else {
            panic!("it is read");
        };
        assert_eq!(campaign.as_str(), "c-1");
        assert!(reason.contains("it is of horolog 9.0?, protocol 2, this is "), "{reason}");
        for bytes in [&b""[..], b"abc", &packed(&json!({}))] {
            assert_eq!(Assignment::unpack(bytes), Err(AssignmentError::Unreadable));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_calmly(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Assignment::unpack(&bytes);
        }
    }
}
