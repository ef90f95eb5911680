//! The address of the server, with the credentials. The password is never shown.

use std::fmt;

use lapin::uri::AMQPUri;
use longhaul_domain::Invalid;

/// The requested seconds between heartbeats. A server drops a client that is silent for twice that.
const HEARTBEAT_S: u16 = 10;
/// The milliseconds that the TCP connection may take.
const CONNECT_MS: u64 = 3_000;

/// A parsed `amqp://` or `amqps://` URL.
#[derive(Clone)]
pub(super) struct Address(AMQPUri);

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, Invalid> {
        let allowed = "amqp://user:password@host:port/vhost, or amqps:// for TLS";
        if !url.starts_with("amqp://") && !url.starts_with("amqps://") {
            return Err(Invalid::new(
                "broker.url",
                "does not start with amqp:// or amqps://",
                allowed,
            ));
        }

        // The parser's message is dropped: it may repeat the password.
        let mut uri: AMQPUri = url
            .parse()
            .map_err(|_| Invalid::new("broker.url", "is no URL of AMQP", allowed))?;
        if uri.vhost.is_empty() {
            // To users a slash at the end means the default virtual host. To AMQP it is an empty
            // name.
            "/".clone_into(&mut uri.vhost);
        }

        uri.query.heartbeat.get_or_insert(HEARTBEAT_S);
        uri.query.connection_timeout.get_or_insert(CONNECT_MS);

        Ok(Self(uri))
    }

    pub(super) fn uri(&self) -> AMQPUri {
        self.0.clone()
    }

    pub(super) fn host_and_port(&self) -> (&str, u16) {
        (&self.0.authority.host, self.0.authority.port)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AMQPUri {
            scheme,
            authority,
            vhost,
            query: _,
        } = &self.0;

        write!(
            f,
            "{scheme}://{}:{} (virtual host {vhost})",
            authority.host, authority.port
        )
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        let address = Address::parse("amqps://ann:hush%21@broker.example:5671/v").unwrap();
        assert_eq!(
            format!("{address:?}"),
            "amqps://broker.example:5671 (virtual host v)"
        );

        for url in [
            "amqp://ann:hush@host:port/",
            "http://ann:hush@host/",
            "amqp://ann:hush@host/?heartbeat=hush",
            "hush",
        ] {
            let refusal = Address::parse(url).unwrap_err();
            assert!(
                !format!("{refusal:?} {refusal}").contains("hush"),
                "{refusal}"
            );
        }
    }

    #[test]
    fn a_slash_at_the_end_is_the_default_virtual_host() {
        for url in ["amqp://host", "amqp://host/", "amqp://host/%2f"] {
            assert_eq!(Address::parse(url).unwrap().uri().vhost, "/", "{url}");
        }
    }
}
