// mlir-opt with kdac's dialects and passes.
#include "kdac/Dialect/Dplr.h"
#include "kdac/Dialect/Tile.h"
#include "kdac/Dialect/Triton.h"
#include "kdac/Passes.h"

#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  registry.insert<kdac::dplr::DplrDialect, kdac::tile::TileDialect,
                  kdac::tt::TritonDialect>();
  mlir::registerAllPasses();
  kdac::registerKdacPasses();
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "kdac optimizer\n", registry));
}
