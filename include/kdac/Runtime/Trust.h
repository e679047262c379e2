// Promises: which assemblers are known to miscompile, and whether a kernel they
// made has passed its self-test on a GPU. Does not: run self-tests
// (kdac-pack check does), or refuse to load anything.
#ifndef KDAC_RUNTIME_TRUST_H
#define KDAC_RUNTIME_TRUST_H

#include "kdac/Pack/Manifest.h"
#include "kdac/Runtime/Device.h"

namespace kdac {

/// An assembler whose machine code needs a self-test before it is trusted.
struct SuspectAssembler {
  std::string_view version; ///< of ptxas
  std::string_view reason;
};

const std::vector<SuspectAssembler> &suspectAssemblers();

/// The row for `version`, or null.
const SuspectAssembler *findSuspectAssembler(std::string_view version);

/// One passed self-test: this machine code on this kind of GPU.
struct Receipt {
  std::string sha256; ///< of the cubin
  std::string gpu;    ///< "NVIDIA H200"
  std::string driver;
  std::string date; ///< ISO 8601, UTC
  std::string variant;
};

/// Receipts as text: a line "kdac receipts 1", then one line each with the
/// fields of Receipt separated by tabs. They lie beside a pack, as
/// PACK.checked.
class Receipts {
public:
  static StatusOr<Receipts> parse(std::string_view text,
                                  const std::string &name);
  /// The file's receipts; none if there is no such file.
  static StatusOr<Receipts> read(const std::string &path);
  /// Replaces the file by one with these receipts.
  Status write(const std::string &path) const;

  /// Takes a receipt, in place of an older one for the same code and GPU.
  void add(Receipt receipt);
  /// Forgets the code on the GPU: its self-test failed.
  void remove(std::string_view sha256, std::string_view gpu);
  const Receipt *find(std::string_view sha256, std::string_view gpu) const;
  const std::vector<Receipt> &all() const { return receipts; }

private:
  std::vector<Receipt> receipts;
};

/// Where the receipts of a pack file are.
inline std::string receiptsPath(const std::string &pack) {
  return pack + ".checked";
}

/// Whether loaded code is known to be good, and why.
struct Trust {
  bool verified = true;
  std::string why;
};
Trust trustOf(const PackVariant &variant, const Image &image,
              std::string_view gpu, const Receipts &receipts);

} // namespace kdac

#endif // KDAC_RUNTIME_TRUST_H
