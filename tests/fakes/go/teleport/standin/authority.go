package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"github.com/gravitational/teleport/api/constants"
	"github.com/gravitational/teleport/api/identityfile"
	"github.com/gravitational/teleport/api/utils"
	"golang.org/x/crypto/ssh"
)

// Certificates are valid from some time ago on.
const backdated = time.Hour

// One certificate authority: Teleport has one for hosts and another for users.
type certificateAuthority struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

// The authorities of the cluster. A user's certificate is signed by the one for users, and an identity file has only the
// one for hosts: its certificate cannot be verified with its own CAs.
type authorities struct {
	cluster, folder string
	hosts, users    certificateAuthority
	ssh             ssh.Signer
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func serialNumber() *big.Int {
	return must(rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)))
}

func newKey() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

func newCertificateAuthority(cluster string) certificateAuthority {
	key := newKey()
	template := &x509.Certificate{
		SerialNumber: serialNumber(),
		Subject:      pkix.Name{CommonName: cluster, Organization: []string{cluster}},
		NotBefore:    time.Now().Add(-backdated), NotAfter: time.Now().Add(240 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, IsCA: true, BasicConstraintsValid: true,
	}
	der := must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	return certificateAuthority{key, must(x509.ParseCertificate(der))}
}

func newAuthorities(cluster, folder string) *authorities {
	return &authorities{
		cluster: cluster, folder: folder,
		hosts: newCertificateAuthority(cluster), users: newCertificateAuthority(cluster),
		ssh: must(ssh.NewSignerFromKey(newKey())),
	}
}

func (ca certificateAuthority) issue(template *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	template.SerialNumber = serialNumber()
	template.NotBefore = time.Now().Add(-backdated)
	template.KeyUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment
	template.BasicConstraintsValid = true
	return must(x509.CreateCertificate(rand.Reader, template, ca.certificate, key.Public(), ca.key))
}

func toPEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// The TLS of one auth. Its certificate names no address: a client has to ask for Teleport's own name.
func (a *authorities) serverConfig(id string) *tls.Config {
	key := newKey()
	der := a.hosts.issue(&x509.Certificate{
		Subject:  pkix.Name{CommonName: id + "." + a.cluster, Organization: []string{"Auth"}},
		NotAfter: time.Now().Add(24 * time.Hour),
		DNSNames: []string{
			constants.APIDomain, "*." + constants.APIDomain, utils.EncodeClusterName(a.cluster), id + "." + a.cluster,
		},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, key)
	clients := x509.NewCertPool()
	clients.AddCert(a.users.certificate)
	clients.AddCert(a.hosts.certificate)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		ClientCAs:    clients, ClientAuth: tls.VerifyClientCertIfGiven,
		NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12,
	}
}

// Files of one user's identity, as `tctl auth sign` names them.
type identityFiles struct {
	Identity    string `json:"identity"`
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
	Authority   string `json:"authority"`
	// The user's certificate ends here.
	Expires time.Time `json:"expires"`
}

// writeIdentity writes a user's identity file and TLS triple, anew if they exist; readers see the old or the new file.
func (a *authorities) writeIdentity(user string, ttl time.Duration) (identityFiles, error) {
	path := filepath.Join(a.folder, user)
	expires := time.Now().Add(ttl).Truncate(time.Second)
	files := identityFiles{path + ".pem", path + ".crt", path + ".key", path + ".cas", expires.UTC()}
	key := newKey()
	keyPEM := toPEM("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(key)))
	certificate := toPEM("CERTIFICATE", a.users.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: []string{"refloat"}},
		NotAfter:    expires,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, key))
	hostCA := toPEM("CERTIFICATE", a.hosts.certificate.Raw)
	known := append([]byte("@cert-authority *."+a.cluster+" "), ssh.MarshalAuthorizedKey(a.ssh.PublicKey())...)
	sshCertificate := &ssh.Certificate{
		Key: must(ssh.NewPublicKey(key.Public())), CertType: ssh.UserCert, KeyId: user, ValidPrincipals: []string{user},
		ValidAfter: uint64(time.Now().Add(-backdated).Unix()), ValidBefore: uint64(expires.Unix()),
	}
	if err := sshCertificate.SignCert(rand.Reader, a.ssh); err != nil {
		return files, err
	}
	draft := files.Identity + ".new"
	if err := identityfile.Write(&identityfile.IdentityFile{
		PrivateKey: keyPEM,
		Certs:      identityfile.Certs{SSH: ssh.MarshalAuthorizedKey(sshCertificate), TLS: certificate},
		CACerts:    identityfile.CACerts{SSH: [][]byte{known}, TLS: [][]byte{hostCA}},
	}, draft); err != nil {
		return files, fmt.Errorf("write %s: %w", draft, err)
	}
	for path, content := range map[string][]byte{
		files.Certificate: certificate, files.Key: keyPEM, files.Authority: hostCA,
	} {
		if err := os.WriteFile(path+".new", content, 0o600); err != nil {
			return files, err
		}
		if err := os.Rename(path+".new", path); err != nil {
			return files, err
		}
	}
	return files, os.Rename(draft, files.Identity)
}
