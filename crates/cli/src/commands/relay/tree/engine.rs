//! Engines with which `relay tree` can measure a tree of relays.

use horolog_relay::{Relay, RoutingTableSpec, SocketEngineKind, XdpEngine};

use crate::failure::CommandFailure;

/// Engine with which relays make copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CopyEngine {
    /// One system call per copy.
    Send,
    /// One system call for many copies.
    Sendmmsg,
    /// XDP program in the kernel.
    Xdp,
}

impl CopyEngine {
    const ALL: [Self; 3] = [Self::Send, Self::Sendmmsg, Self::Xdp];
    /// Engines compared by default: one system call per copy, and in-kernel copies.
    pub(super) const DEFAULT_ENGINES: [Self; 2] = [Self::Send, Self::Xdp];

    /// Parses the name of an engine, or `auto` for [`Self::Xdp`].
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        // `auto` means XDP, all of whose requirements a lab host meets.
        let found = Self::ALL.into_iter().find(|engine| engine.name() == text);
        found.or((text == "auto").then_some(Self::Xdp)).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("expected auto, {names}, or two of them separated by a comma")
        })
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Send => SocketEngineKind::Send.name(),
            Self::Sendmmsg => SocketEngineKind::Sendmmsg.name(),
            Self::Xdp => "xdp",
        }
    }

    /// Starts a relay in the calling thread's network namespace; an error if another engine than
    /// this one makes the copies.
    pub(super) fn start(self, spec: &RoutingTableSpec) -> Result<Relay, CommandFailure> {
        let (host, kernel) = match self {
            Self::Send => (SocketEngineKind::Send, None),
            Self::Sendmmsg => (SocketEngineKind::Sendmmsg, None),
            Self::Xdp => {
                let kernel = XdpEngine::load(&[]).map_err(CommandFailure::environment)?;
                (SocketEngineKind::Sendmmsg, Some(kernel))
            }
        };
        let relay = Relay::start(spec, host, kernel)?;
        verify_engine(&relay).map(|()| relay)
    }
}

/// Returns an error if a relay with the XDP engine does not use it for its copies: the results
/// would be those of another engine.
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
