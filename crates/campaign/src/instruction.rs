//! What an agent is to do, as it lies at the broker for the agent to look at: its order, and the
//! last word about it. Each new one has all that came before, so an agent that missed one, or was
//! restarted, needs no other. What cannot be read is told apart from what is not for this version,
//! so that a controller is told why nothing happens.

use serde::{Deserialize, Serialize};

use crate::CampaignId;
use crate::fault::shown;
use crate::order::{Order, PROTOCOL, SHOWN_MAX, Word};
use crate::packing;

/// Bytes of an instruction before it is packed, at most.
pub const INSTRUCTION_BYTES_MAX: u64 = 64 << 20;

/// An order, and the last word about it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instruction {
    /// What is to be done.
    pub order: Order,
    /// The last word; without one, services are started and the instant is waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub word: Option<Word>,
}

/// What any version says of an order.
#[derive(Deserialize)]
struct Head {
    order: OrderHead,
}

#[derive(Deserialize)]
struct OrderHead {
    protocol: u32,
    version: String,
    campaign: CampaignId,
}

/// Why an instruction is not followed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InstructionError {
    /// It is none.
    #[error("an order that cannot be read")]
    Unreadable,
    /// It is one of another version.
    #[error("{reason}")]
    Foreign {
        /// The campaign.
        campaign: CampaignId,
        /// Why, in one line.
        reason: String,
    },
}

impl Instruction {
    /// As bytes, compressed.
    #[must_use]
    pub fn pack(&self) -> Vec<u8> {
        // All of it has a form in JSON.
        packing::pack(self).unwrap_or_default()
    }

    /// From such bytes.
    ///
    /// # Errors
    ///
    /// They are none, or of a version that is not this one.
    pub fn unpack(packed: &[u8]) -> Result<Self, InstructionError> {
        let Ok(Some(text)) = packing::unpack(packed, INSTRUCTION_BYTES_MAX) else {
            return Err(InstructionError::Unreadable);
        };
        serde_json::from_slice(&text).map_err(|_| foreign(&text))
    }
}

fn foreign(text: &[u8]) -> InstructionError {
    let Ok(Head { order }) = serde_json::from_slice::<Head>(text) else {
        return InstructionError::Unreadable;
    };
    let version: String = shown(&order.version, SHOWN_MAX);
    let reason = format!(
        "the order is of horolog {version}, protocol {}, and cannot be read by {}, protocol \
         {PROTOCOL}; install one version",
        order.protocol,
        env!("CARGO_PKG_VERSION")
    );
    InstructionError::Foreign { campaign: order.campaign, reason }
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
        let read = Instruction::unpack(&packed(&instruction())).unwrap();
        assert_eq!(read.word, Some(Word::Start { at_ns: 5 }));
        assert_eq!(Instruction::unpack(&read.pack()), Ok(read));
    }

    #[test]
    fn one_of_another_version_is_told_from_one_that_is_none() {
        let mut later = instruction();
        later["order"]["protocol"] = json!(2);
        later["order"]["version"] = json!("9.0\n");
        later["order"]["colour"] = json!("blue");
        let Err(InstructionError::Foreign { campaign, reason }) =
            Instruction::unpack(&packed(&later))
        else {
            panic!("it is read");
        };
        assert_eq!(campaign.as_str(), "c-1");
        assert!(reason.starts_with("the order is of horolog 9.0?, protocol 2, and "), "{reason}");
        for bytes in [&b""[..], b"abc", &packed(&json!({}))] {
            assert_eq!(Instruction::unpack(bytes), Err(InstructionError::Unreadable));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_calmly(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Instruction::unpack(&bytes);
        }
    }
}
