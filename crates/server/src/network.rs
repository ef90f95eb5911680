//! A network in CIDR notation, `10.0.0.0/8`, or a single address, `::1`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The addresses that share a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network(IpNet);

impl Network {
    /// The addresses of this machine.
    pub const LOOPBACK: [Self; 2] = [
        Self(IpNet::V4(Ipv4Net::new_assert(
            Ipv4Addr::new(127, 0, 0, 0),
            8,
        ))),
        Self(IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128))),
    ];

    /// Whether the address is in the network. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let single = text.parse::<IpAddr>().map(IpNet::from);
        let network = single.or_else(|_| text.parse::<IpNet>());
        network.map(Self).map_err(|_| {
            format!("{text:?} is not a network; allowed: 10.0.0.0/8, 192.168.1.7, fd00::/8")
        })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_contains_the_addresses_with_its_prefix() {
        let is_in = |network: &str, address: &str| {
            let network: Network = network.parse().unwrap();
            network.contains(address.parse().unwrap())
        };
        assert!(is_in("10.0.0.0/8", "10.9.8.7") && !is_in("10.0.0.0/8", "11.0.0.0"));
        assert!(is_in("10.0.0.0/8", "::ffff:10.9.8.7"));
        assert!(is_in("192.168.1.7", "192.168.1.7") && !is_in("192.168.1.7", "192.168.1.6"));

        assert!(is_in("0.0.0.0/0", "1.2.3.4") && !is_in("0.0.0.0/0", "::1"));
        assert!(is_in("fd00::/8", "fd12::1") && !is_in("fd00::/8", "fe00::1"));
    }

    #[test]
    fn other_texts_are_not_networks() {
        for text in ["", "10.0.0.0/33", "10.0.0", "ten", "10.0.0.0/x", "::/129"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_network_is_written_in_cidr_notation() {
        for (text, written) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("192.168.1.7", "192.168.1.7/32"),
        ] {
            assert_eq!(text.parse::<Network>().unwrap().to_string(), written);
        }
    }
}
