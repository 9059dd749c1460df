package deploy_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wakebus/wakebus/internal/bus"
)

// certificate writes a key and a certificate for loopback, signed by parent or by itself, and returns what signs others.
func certificate(t *testing.T, dir, name string, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: parent == nil,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	if parent == nil {
		parent, signer = cert, key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{name + ".pem": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func TestUnderTLSAClientNeedsACertificateOfOursAndItsPassword(t *testing.T) { // not parallel: it sets the environment
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	ca, key := certificate(t, dir, "ca", nil, nil)
	certificate(t, dir, "server", ca, key)
	certificate(t, dir, "client", ca, key)
	certificate(t, dir, "stranger", nil, nil)
	t.Setenv("WAKEBUS_NATS_TLS_CERT", file("server.pem"))
	t.Setenv("WAKEBUS_NATS_TLS_KEY", file("server.key"))
	t.Setenv("WAKEBUS_NATS_TLS_CA", file("ca.pem"))
	b := startBroker(t, "nats-tls.conf")
	known := func(c *bus.Config) { c.CA, c.Cert, c.Key = file("ca.pem"), file("client.pem"), file("client.key") }
	if err := b.connect("setup", known).Setup(within(t)); err != nil {
		t.Fatal(err)
	}
	b.connect("worker", known)
	for name, change := range map[string]func(*bus.Config){
		"no certificate": func(c *bus.Config) { c.CA = file("ca.pem") },
		"a stranger's":   func(c *bus.Config) { c.CA, c.Cert, c.Key = file("ca.pem"), file("stranger.pem"), file("stranger.key") },
		"another server": func(c *bus.Config) { c.Cert, c.Key = file("client.pem"), file("client.key") },
	} {
		cfg := bus.Config{URL: b.url("worker"), InboxPrefix: "_INBOX_worker"}
		change(&cfg)
		if conn, err := bus.Connect(within(t), cfg); err == nil {
			conn.Close()
			t.Errorf("%s: connected", name)
		}
	}
	wrong := bus.Config{URL: strings.Replace(b.url("worker"), "pw-of-worker", "wrong", 1)}
	known(&wrong)
	if conn, err := bus.Connect(within(t), wrong); err == nil {
		conn.Close()
		t.Error("a certificate stood in for the password")
	}
}
