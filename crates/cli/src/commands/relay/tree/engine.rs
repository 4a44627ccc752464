//! Engines with which a tree of relays can be measured.

use horolog_relay::{EngineKind, Relay, TableSpec, XdpEngine};

use crate::failure::CommandFailure;

/// Engine that makes the copies of a relay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CopyEngine {
    /// One system call per copy.
    Send,
    /// One system call for many copies.
    Sendmmsg,
    /// The kernel's driver path.
    Xdp,
}

impl CopyEngine {
    const ALL: [Self; 3] = [Self::Send, Self::Sendmmsg, Self::Xdp];
    /// Common host-based relaying, and in-kernel relaying.
    pub(super) const DEFAULT_ENGINES: [Self; 2] = [Self::Send, Self::Xdp];

    /// Reads a name.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        // A lab host has all that the best engine needs.
        let found = Self::ALL.into_iter().find(|maker| maker.name() == text);
        found.or((text == "auto").then_some(Self::Xdp)).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("expected auto, {names}, or two of them separated by a comma")
        })
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Send => EngineKind::Send.name(),
            Self::Sendmmsg => EngineKind::Sendmmsg.name(),
            Self::Xdp => "xdp",
        }
    }

    /// Starts a relay in the network namespace of the calling thread.
    pub(super) fn start(self, spec: &TableSpec) -> Result<Relay, CommandFailure> {
        let (host, kernel) = match self {
            Self::Send => (EngineKind::Send, None),
            Self::Sendmmsg => (EngineKind::Sendmmsg, None),
            Self::Xdp => {
                let kernel = XdpEngine::load(&[]).map_err(CommandFailure::environment)?;
                (EngineKind::Sendmmsg, Some(kernel))
            }
        };
        let relay = Relay::start(spec, host, kernel)?;
        verify_engine(&relay).map(|()| relay)
    }
}

/// Rejects a relay whose copies are not made by the selected engine: results of another one would
/// be wrong.
pub(super) fn verify_engine(relay: &Relay) -> Result<(), CommandFailure> {
    let refused = relay.listing().groups.into_iter().find_map(|group| group.xdp_unavailable);
    refused.map_or(Ok(()), |why| {
        Err(CommandFailure::environment(format!("in-kernel copies unavailable: {why}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_have_the_names_of_those_of_a_relay() {
        for maker in CopyEngine::ALL {
            assert_eq!(CopyEngine::parse(maker.name()), Ok(maker));
        }
        assert_eq!(CopyEngine::parse("auto"), Ok(CopyEngine::Xdp));
        assert!(
            CopyEngine::parse("fast")
                .unwrap_err()
                .starts_with("expected auto, send, sendmmsg, xdp")
        );
    }
}
