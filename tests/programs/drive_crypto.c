/* Calls functions of libcrypto that compute: digests, ciphers, large numbers, encodings. Its output
 * depends on nothing outside it. */
#include <openssl/asn1.h>
#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <string.h>

static unsigned long sum = 5381;

static void add(const unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        sum = sum * 33 + bytes[i];
}

static void digests(const unsigned char *text, size_t size)
{
    static const char *names[] = {"MD5", "SHA1", "SHA256", "SHA512", "SHA3-256", "BLAKE2b512"};
    unsigned char out[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (size_t part = 0; part <= size; part += 97) {
            const EVP_MD *digest = EVP_get_digestbyname(names[i]);
            EVP_Digest(text, part, out, &length, digest, NULL);
            add(out, length);
        }
    HMAC(EVP_sha256(), "key", 3, text, size, out, &length);
    add(out, length);
    PKCS5_PBKDF2_HMAC("secret", 6, text, 16, 5, EVP_sha1(), 32, out);
    add(out, 32);
}

static void ciphers(const unsigned char *text, int size)
{
    const EVP_CIPHER *all[] = {EVP_aes_128_cbc(), EVP_aes_256_gcm(), EVP_aes_192_ctr(),
                               EVP_chacha20(), EVP_camellia_128_cbc()};
    static unsigned char coded[2000], back[2000];
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int done = 0, last = 0;
        EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
        EVP_EncryptInit_ex(context, all[i], NULL, text, text + 40);
        EVP_EncryptUpdate(context, coded, &done, text, size);
        EVP_EncryptFinal_ex(context, coded + done, &last);
        add(coded, (size_t)(done + last));
        int whole = done + last;
        EVP_DecryptInit_ex(context, all[i], NULL, text, text + 40);
        EVP_DecryptUpdate(context, back, &done, coded, whole);
        EVP_DecryptFinal_ex(context, back + done, &last);
        add(back, (size_t)done);
        EVP_CIPHER_CTX_free(context);
    }
}

static void numbers(void)
{
    BN_CTX *context = BN_CTX_new();
    BIGNUM *a = NULL, *b = NULL, *modulus = NULL, *result = BN_new();
    BN_hex2bn(&a, "123456789abcdef0fedcba9876543210aa55");
    BN_dec2bn(&b, "98765432109876543210987654321");
    BN_hex2bn(&modulus, "ffffffffffffffffffffffffffffff61");
    BN_mod_exp(result, a, b, modulus, context);
    char *text = BN_bn2dec(result);
    add((unsigned char *)text, strlen(text));
    OPENSSL_free(text);
    BN_mod_inverse(result, a, modulus, context);
    BN_gcd(b, a, modulus, context);
    BN_div(a, NULL, modulus, result, context);
    BN_sqr(result, a, context);
    text = BN_bn2hex(result);
    add((unsigned char *)text, strlen(text));
    OPENSSL_free(text);
    BN_free(a), BN_free(b), BN_free(modulus), BN_free(result), BN_CTX_free(context);
}

static void encodings(const unsigned char *text, int size)
{
    static unsigned char coded[4000], back[4000];
    for (int part = 1; part < size; part += 131) {
        int length = EVP_EncodeBlock(coded, text, part);
        add(coded, (size_t)length);
        add(back, (size_t)EVP_DecodeBlock(back, coded, length));
    }
    for (long value = -70000; value < 70000; value += 9973) {
        ASN1_INTEGER *number = ASN1_INTEGER_new();
        ASN1_INTEGER_set(number, value);
        unsigned char *out = NULL;
        int length = i2d_ASN1_INTEGER(number, &out);
        add(out, (size_t)length);
        OPENSSL_free(out);
        ASN1_INTEGER_free(number);
    }
    X509_NAME *name = X509_NAME_new();
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"one", -1, -1, 0);
    X509_NAME_add_entry_by_txt(name, "O", MBSTRING_ASC, (const unsigned char *)"two", -1, -1, 0);
    char line[100];
    X509_NAME_oneline(name, line, sizeof line);
    add((unsigned char *)line, strlen(line));
    X509_NAME_free(name);
}

int main(void)
{
    static unsigned char text[1000];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (unsigned char)(i * 7 + i / 13);
    digests(text, sizeof text);
    ciphers(text, sizeof text);
    numbers();
    encodings(text, sizeof text);
    printf("ok %016lx\n", sum);
    return 0;
}
