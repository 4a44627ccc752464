//! Plain NTP requests to a reflector, which returns them unchanged, instead of a time server: this
//! measures the capacity of the path.

use horolog_record::{LoadEngineKind as Kind, RequestMode};

use super::{RequestBehaviour, RequestKind};
use crate::compliant_clients::CompliantClientOptions;
use crate::engine::{EngineError, LoadEngine, unavailable_error};
use crate::plan::RunPlan;
use crate::request_tracker::ExpectedReplies;
use crate::verify::ReplyVerifier;

/// Requests to a reflector. Only the XDP engine supports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EchoRequests;

impl RequestBehaviour for EchoRequests {
    fn mode(&self) -> RequestMode {
        RequestMode::Echo
    }

    fn open_engine(&self, kind: Kind, _: &RunPlan) -> Result<Box<dyn LoadEngine>, EngineError> {
        let reason = "it supports replies of NTP servers only".to_owned();
        Err(unavailable_error(kind, reason, "use --engine xdp for a reflector"))
    }

    fn compliant_requests(&self) -> RequestKind {
        RequestKind::Echo(*self)
    }

    fn unsupported_as_compliant(&self, _: &CompliantClientOptions) -> Option<&'static str> {
        Some("a reflector has no rate limiting")
    }

    fn expected_replies(&self, plan: &RunPlan, _: u32, _: (usize, usize)) -> ExpectedReplies {
        ExpectedReplies::Ntp(ReplyVerifier::plain(plan.token))
    }
}
