//! RabbitMQ and Redis behind TLS.

use std::path::Path;
use std::process::Command as Blocking;
use std::sync::Arc;

use libtest_mimic::Trial;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};

use super::{Fleet, server, set_up::state_of};
use crate::program::process::answer;
use crate::trial::once;

pub(crate) fn trials() -> Vec<Trial> {
    once![servers_behind_tls_are_trusted_by_their_certificates]
}

/// Makes an authority, and a certificate for `localhost` that it signs.
fn make_certificates(folder: &Path) {
    let openssl = |arguments: &str| {
        let made = Blocking::new("openssl")
            .args(arguments.split(' '))
            .current_dir(folder)
            .output()
            .unwrap();
        assert!(
            made.status.success(),
            "{arguments}: {}",
            String::from_utf8_lossy(&made.stderr)
        );
    };

    openssl(
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.pem",
    );
    openssl(
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout key.pem \
         -out cert.pem -CA ca.pem -CAkey ca.key -addext subjectAltName=DNS:localhost \
         -addext basicConstraints=critical,CA:FALSE",
    );
}

/// Starts a TLS proxy before the server of a URL. Returns the URL of the proxy, with this scheme.
async fn behind_tls(folder: &Path, scheme: &str, url: &str) -> String {
    let (before, address) = url.rsplit_once('@').unwrap();
    let (server, rest) = address.split_once('/').unwrap();
    let credentials = before.split_once("://").unwrap().1;
    let certificate = CertificateDer::from_pem_file(folder.join("cert.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.join("key.pem")).unwrap();
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();

    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = server.to_owned();

    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            let server = server.clone();
            tokio::spawn(async move {
                let mut client = acceptor.accept(client).await?;
                tokio::io::copy_bidirectional(&mut client, &mut TcpStream::connect(server).await?)
                    .await
            });
        }
    });

    format!("{scheme}://{credentials}@localhost:{port}/{rest}")
}

async fn servers_behind_tls_are_trusted_by_their_certificates() {
    let fleet = Fleet::make().await;
    let folder = fleet.database.folder.path();
    make_certificates(folder);
    let broker = behind_tls(folder, "amqps", &server("LONGHAUL_TEST_RABBITMQ")).await;
    let redis = behind_tls(folder, "rediss", &server("LONGHAUL_TEST_REDIS")).await;
    let password = broker.split([':', '@']).nth(2).unwrap();

    let program = |command: &str, authority: &str| {
        let mut program =
            fleet.program(&[command, "--json"][..if command == "doctor" { 2 } else { 1 }]);
        program
            .env("LONGHAUL_BROKER", &broker)
            .env("LONGHAUL_REDIS", &redis)
            .env("SSL_CERT_FILE", folder.join(authority));
        program
    };

    answer(program("migrate", "ca.pem")).await.ok();
    let report = answer(program("doctor", "ca.pem")).await.ok();
    for name in ["broker", "topology", "redis"] {
        assert_eq!(state_of(&report, name), "ok", "{report}");
    }

    // An authority that did not sign the servers' certificates.
    let other = folder.join("other");
    std::fs::create_dir(&other).unwrap();
    make_certificates(&other);
    let report = answer(program("doctor", "other/ca.pem")).await;

    for name in ["broker", "redis"] {
        assert_eq!(state_of(&report.out(), name), "fail", "{}", report.all());
    }

    assert!(!report.all().contains(password), "{}", report.all());
}
