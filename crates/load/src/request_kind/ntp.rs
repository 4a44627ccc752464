//! NTP requests in basic and in interleaved mode (RFC 5905, RFC 9769), plain or with extension
//! fields and a MAC.

use horolog_record::RequestMode;

use super::{CURRENT_VERSION, RequestBehaviour, RequestKind};
use crate::engine::EngineError;
use crate::error::LoadError;
use crate::options::LoadOptions;
use crate::plan::RunPlan;
use crate::request_tracker::ExpectedReplies;
use crate::trailer::{RequestTrailer, TrailerOptions, TrailerTemplate};
use crate::verify::ReplyVerifier;

/// NTP requests: basic mode and version 4 by default.
#[derive(Clone, Debug)]
pub struct NtpRequestOptions {
    /// NTP version, 1 to 4.
    pub version: u8,
    /// True for interleaved mode (RFC 9769).
    pub interleaved: bool,
    /// Trailer after the header.
    pub trailer: TrailerOptions,
}

impl Default for NtpRequestOptions {
    fn default() -> Self {
        let (interleaved, trailer) = (false, TrailerOptions::default());
        Self { version: CURRENT_VERSION, interleaved, trailer }
    }
}

impl NtpRequestOptions {
    /// Returns requests in interleaved mode.
    #[must_use]
    pub fn interleaved() -> Self {
        Self { interleaved: true, ..Self::default() }
    }

    /// Refuses a version that does not exist.
    pub(super) const fn check_version(&self) -> Result<(), LoadError> {
        match self.version {
            1..=4 => Ok(()),
            version => Err(LoadError::Version(version)),
        }
    }
}

impl RequestBehaviour for NtpRequestOptions {
    fn mode(&self) -> RequestMode {
        if self.interleaved { RequestMode::NtpInterleaved } else { RequestMode::NtpBasic }
    }

    fn check_options(&self, options: &LoadOptions) -> Result<(), LoadError> {
        self.check_version()?;
        if self.interleaved && options.random_sources {
            return Err(LoadError::Interleaved);
        }
        Ok(())
    }

    fn unsupported_by_xdp(&self) -> Option<(&'static str, &'static str)> {
        let remedy = "use --engine packet or udp with --key or --extension";
        (!self.trailer.is_empty()).then_some(("it sends the bare header only", remedy))
    }

    fn compliant_requests(&self) -> RequestKind {
        RequestKind::Ntp(Self { interleaved: false, ..self.clone() })
    }

    fn depends_on_replies(&self) -> bool {
        self.interleaved
    }

    fn version(&self) -> u8 {
        self.version
    }

    fn request_trailer(&self, _: (usize, usize)) -> Result<Option<RequestTrailer>, EngineError> {
        let fixed = || RequestTrailer::Fixed(TrailerTemplate::new(&self.trailer, self.version));
        Ok((!self.trailer.is_empty()).then(fixed))
    }

    fn expected_replies(&self, plan: &RunPlan, _: u32, _: (usize, usize)) -> ExpectedReplies {
        ExpectedReplies::Ntp(ReplyVerifier {
            token: plan.token,
            version: self.version,
            interleaved: self.interleaved,
            extended: !self.trailer.is_empty(),
        })
    }
}
