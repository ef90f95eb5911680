//! Signed URLs, each of which grants the download of one file until a moment. No other credential
//! is needed.

use std::fmt;
use std::sync::OnceLock;

use hmac::{Hmac, KeyInit as _, Mac as _};
use longhaul_domain::{Timestamp, ids::ArtifactId};
use sha2::Sha256;

/// The length of the signing key in bytes: that of a SHA-256 digest.
pub const KEY_BYTES: usize = 32;

type Load = Box<dyn Fn() -> Result<[u8; KEY_BYTES], String> + Send + Sync>;

/// Signs and verifies URLs. The key is loaded when it is first needed, because most programs never
/// make a file.
pub struct UrlSigner {
    load: Load,
    key: OnceLock<[u8; KEY_BYTES]>,
}

impl fmt::Debug for UrlSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UrlSigner(…)")
    }
}

impl UrlSigner {
    pub fn new(load: impl Fn() -> Result<[u8; KEY_BYTES], String> + Send + Sync + 'static) -> Self {
        Self {
            load: Box::new(load),
            key: OnceLock::new(),
        }
    }

    /// The URL of a file, below the server's own. It is valid until `expires_at`, to the second.
    pub fn url(&self, id: ArtifactId, expires_at: Timestamp) -> Result<String, String> {
        let expires = seconds(expires_at);
        let signature = self.mac(id, expires)?.finalize().into_bytes();
        let signature = hex::encode(signature);
        Ok(format!(
            "/api/artifacts/{id}?expires={expires}&signature={signature}"
        ))
    }

    /// Whether the signature is valid and has not expired. The comparison takes constant time.
    pub fn allows(
        &self,
        id: ArtifactId,
        expires: i64,
        signature: &str,
        now: Timestamp,
    ) -> Result<bool, String> {
        let claimed = hex::decode(signature).unwrap_or_default();
        let is_valid = self.mac(id, expires)?.verify_slice(&claimed).is_ok();
        Ok(is_valid && seconds(now) < expires)
    }

    fn mac(&self, id: ArtifactId, expires: i64) -> Result<Hmac<Sha256>, String> {
        if self.key.get().is_none() {
            // Two threads that load it at once load the same key.
            let _ = self.key.set((self.load)()?);
        }

        let key = self.key.get().ok_or("there is no signing key")?;
        let mut mac = Hmac::<Sha256>::new_from_slice(key).map_err(|error| error.to_string())?;
        mac.update(format!("longhaul artifact {id} until {expires}").as_bytes());
        Ok(mac)
    }
}

const fn seconds(moment: Timestamp) -> i64 {
    moment.as_micros().div_euclid(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: ArtifactId = ArtifactId(uuid::Uuid::from_u128(7));

    fn at(second: i64) -> Timestamp {
        Timestamp::from_micros(second * 1_000_000)
    }

    fn signature(signer: &UrlSigner) -> String {
        signer
            .url(FILE, at(100))
            .unwrap()
            .rsplit_once('=')
            .unwrap()
            .1
            .to_owned()
    }

    #[test]
    fn a_signature_is_valid_for_its_file_and_its_time_alone() {
        let signer = UrlSigner::new(|| Ok([1; KEY_BYTES]));
        let valid = signature(&signer);
        assert!(signer.allows(FILE, 100, &valid, at(99)).unwrap());
        assert!(
            !signer.allows(FILE, 100, &valid, at(100)).unwrap(),
            "it has expired"
        );
        assert!(
            !signer.allows(FILE, 101, &valid, at(99)).unwrap(),
            "another expiry"
        );

        assert!(
            !signer
                .allows(ArtifactId(uuid::Uuid::nil()), 100, &valid, at(99))
                .unwrap(),
            "another file"
        );

        let other = UrlSigner::new(|| Ok([2; KEY_BYTES]));
        assert!(
            !other.allows(FILE, 100, &valid, at(99)).unwrap(),
            "another key"
        );
    }

    #[test]
    fn malformed_signatures_are_refused() {
        let signer = UrlSigner::new(|| Ok([1; KEY_BYTES]));
        let valid = signature(&signer);
        for bad in [
            "",
            "00",
            &valid[1..],
            &format!("{valid}0"),
            &"zz".repeat(32),
            &"é".repeat(32),
            &"+1".repeat(32),
        ] {
            assert!(!signer.allows(FILE, 100, bad, at(1)).unwrap(), "{bad}");
        }
    }

    #[test]
    fn without_a_key_nothing_is_signed_or_allowed() {
        let signer = UrlSigner::new(|| Err("the disk is full".to_owned()));
        assert!(signer.url(FILE, at(100)).is_err());
        assert!(signer.allows(FILE, 100, "", at(1)).is_err());
    }
}
